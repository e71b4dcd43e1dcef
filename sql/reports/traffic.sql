-- Distinct deliveries per hour and source.
-- hours (integer, 48): how many hours back
select date_trunc('hour', d.received_at) as hour, d.source, count(*) as deliveries
from deliveries as d
where d.received_at > now() - make_interval(hours => :'hours'::integer)
group by 1, 2
order by hour desc, deliveries desc, source;
