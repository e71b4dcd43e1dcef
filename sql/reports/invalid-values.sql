-- Values that could not be used and were left out, by source, field and problem.
-- days (integer, 30): how many days back, today included
select i.source, i.field, i.problem, sum(i.deliveries)::bigint as deliveries, max(i.last_received_at) as newest,
    (array_agg(i.example_delivery_id order by i.day desc))[1] as example
from invalid_values as i
where i.day > current_date - :'days'::integer
group by i.source, i.field, i.problem
order by deliveries desc, i.source, i.field, i.problem
limit 100;
