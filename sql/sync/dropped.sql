-- Properties that CRMs refused and that were left out of the last push, by destination and cause, for `status`.
-- Result: destination, property, code, count; most frequent first.
select s.destination, d ->> 'property' as property, d ->> 'code' as code, count(*) as leads
from leadsync.lead_sync as s
cross join lateral jsonb_array_elements(
    case when jsonb_typeof(s.dropped_fields) = 'array' then s.dropped_fields else '[]' end
) as d
where s.dropped_fields is not null
group by s.destination, property, code
order by count(*) desc, s.destination, property, code
limit 20;
