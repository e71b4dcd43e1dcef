-- Marketing consent by first source.
-- days (integer, 30): leads created in so many days, today included
select
    l.first_source as source, count(*) as leads, count(*) filter (where l.marketing_consent) as opted_in,
    count(*) filter (where not l.marketing_consent) as opted_out, count(*) filter (where l.marketing_consent is null) as unknown,
    round(100.0 * count(*) filter (where l.marketing_consent) / count(*), 1) as opted_in_percent
from leads as l
where l.created_day > current_date - :'days'::integer
group by l.first_source
order by leads desc, source;
