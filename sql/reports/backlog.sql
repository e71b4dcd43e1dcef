-- What waits for each CRM, and why.
select
    b.destination, b.due, b.leased, b.waiting, b.parked, b.oldest_change_at,
    extract(epoch from now() - b.oldest_change_at)::bigint as oldest_seconds, b.paused_until, b.pause_kind, b.pause_message
from sync_backlog as b
order by b.destination;
