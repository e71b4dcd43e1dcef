-- State of every source that is read at an API, for `status`.
-- Result: one row per source.
select
    a.name,
    a.failures,
    a.paused_until > clock_timestamp() as paused,
    a.pause_kind,
    a.pause_code,
    a.pause_message,
    a.polled_to,
    a.poll_error,
    count(*) filter (where f.state = 'due') as due,
    count(*) filter (where f.state = 'due' and f.lease_until > clock_timestamp()) as leased,
    count(*) filter (where f.state = 'done') as done,
    count(*) filter (where f.state = 'parked') as parked,
    count(*) filter (where f.state = 'deleted') as deleted,
    extract(epoch from clock_timestamp() - min(greatest(f.requested_at, f.fetched_at)) filter (where f.state = 'due'))::float8
        as oldest_due_seconds,
    (
        select jsonb_build_object(
            'kind', e.last_error_kind, 'code', e.last_error_code, 'message', e.last_error_message,
            'object', e.object, 'remote_id', e.remote_id, 'at', e.last_error_at
        )
        from leadsync.fetches as e
        where e.source = a.name and e.last_error_at is not null
        order by e.last_error_at desc
        limit 1
    ) as last_error
from leadsync.source_apis as a
left join leadsync.fetches as f on f.source = a.name
group by a.name
order by a.name;
