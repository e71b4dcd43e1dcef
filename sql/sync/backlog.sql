-- State of every destination, for `status`.
-- Result: one row per destination, also of those without leads.
select
    d.name,
    d.active,
    d.failures,
    d.paused_until > clock_timestamp() as paused,
    d.pause_kind,
    d.pause_code,
    d.pause_message,
    count(*) filter (where s.state = 'due') as due,
    count(*) filter (where s.state = 'due' and s.lease_until > clock_timestamp()) as leased,
    count(*) filter (where s.state = 'synced') as synced,
    count(*) filter (where s.state = 'parked') as parked,
    extract(epoch from clock_timestamp() - min(l.updated_at) filter (where s.state = 'due'))::float8 as oldest_due_seconds,
    (
        select jsonb_build_object('kind', e.last_error_kind, 'code', e.last_error_code, 'message', e.last_error_message, 'at', e.last_error_at)
        from leadsync.lead_sync as e
        where e.destination = d.name and e.last_error_at is not null
        order by e.last_error_at desc
        limit 1
    ) as last_error
from leadsync.destinations as d
left join leadsync.lead_sync as s on s.destination = d.name
left join leadsync.leads as l on l.lead_id = s.lead_id and s.state = 'due'
group by d.name
order by d.name;
