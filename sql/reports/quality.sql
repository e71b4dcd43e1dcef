-- What is missing or doubtful in leads, in percent of those checked.
-- days (integer, 30): leads created in so many days, today included
-- source (text, optional): only this first source
select q.problem, sum(q.found)::bigint as found, t.leads as checked, case when q.problem <> 'invalid_value' then round(100.0 * sum(q.found) / nullif(t.leads, 0), 1) end as percent
from data_quality as q
cross join (
    select count(*) as leads
    from leads as l
    where l.created_day > current_date - :'days'::integer and (:'source' = '' or l.first_source = :'source')
) as t
where q.day > current_date - :'days'::integer and (:'source' = '' or q.source = :'source')
group by q.problem, t.leads
order by found desc, q.problem;
