-- Why deliveries did not become leads, with the newest as an example.
-- days (integer, 30): how many days back, today included
-- source (text, optional): only this source
select
    r.source, r.reason, sum(r.deliveries)::bigint as deliveries, sum(r.copies)::bigint as copies, max(r.last_received_at) as last_received_at,
    (array_agg(r.example_delivery_id order by r.day desc))[1] as example, (array_agg(r.example_detail order by r.day desc))[1] as detail
from rejected_deliveries as r
where r.day > current_date - :'days'::integer and (:'source' = '' or r.source = :'source')
group by r.source, r.reason
order by deliveries desc, r.source, r.reason;
