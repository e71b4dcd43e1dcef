-- How far leads have come: how many are in each stage, and how many in it or further.
-- days (integer, 30): leads created in so many days, today included
-- source (text, optional): only this first source
select
    coalesce(f.stage, '(unknown)') as stage, sum(f.leads)::bigint as leads,
    sum(sum(f.leads)) over (order by f.stage_rank desc)::bigint as reached,
    round(100 * sum(sum(f.leads)) over (order by f.stage_rank desc) / sum(sum(f.leads)) over (), 1) as percent
from funnel as f
where f.day > current_date - :'days'::integer and (:'source' = '' or f.first_source = :'source')
group by f.stage, f.stage_rank
order by f.stage_rank;
