-- Which of the deliveries $1 are archived, and when their first copy was received.
-- Result: delivery_id, received_at.
select a.delivery_id, min(a.received_at) as received_at
from leadsync.deliveries as a
where a.delivery_id = any ($1::uuid[])
group by a.delivery_id;
