-- Rejected deliveries by source and reason, for `status`: also those of several leads of which some were rejected.
-- Result: source, reason, count, newest receipt; most frequent first.
select
    a.source,
    case
        when a.outcome = 'rejected' then a.reason
        else jsonb_path_query_first(a.items, '$[*] ? (@.outcome == "rejected").reason') #>> '{}'
    end as reason,
    count(*) as deliveries,
    max(a.last_received_at) as newest
from leadsync.deliveries as a
where a.outcome = 'rejected' or a.items @> '[{"outcome": "rejected"}]'
group by 1, 2
order by count(*) desc, 1, 2
limit 20;
