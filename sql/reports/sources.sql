-- What each source sent, and what became of it.
-- days (integer, 30): how many days back, today included
select
    s.source, sum(s.deliveries)::bigint as deliveries, sum(s.created)::bigint as created, sum(s.updated)::bigint as updated,
    sum(s.unchanged)::bigint as unchanged, sum(s.rejected)::bigint as rejected, sum(s.ignored)::bigint as ignored, sum(s.repeats)::bigint as repeats,
    round(100.0 * sum(s.rejected) / nullif(sum(s.deliveries), 0), 1) as rejected_percent
from sources_daily as s
where s.day > current_date - :'days'::integer
group by s.source
order by deliveries desc, s.source;
