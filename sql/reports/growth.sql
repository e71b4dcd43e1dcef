-- New leads per week, and how many more or less than the week before, in percent. The running week is not over.
-- weeks (integer, 12): how many weeks back
select
    w.week, w.leads, lag(w.leads) over (order by w.week) as week_before,
    round(100.0 * w.leads / nullif(lag(w.leads) over (order by w.week), 0) - 100, 1) as percent
from (
    select date_trunc('week', l.created_day::timestamp)::date as week, count(*) as leads
    from leads as l
    where l.created_day >= date_trunc('week', current_date::timestamp)::date - 7 * :'weeks'::integer
    group by 1
) as w
order by w.week desc;
