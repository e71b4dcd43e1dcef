-- Leads in sync at destination $1 whose contact run $2, which began at $3, has not seen: up to $4 after lead_id $5.
-- Result: lead_id, e-mail, the remembered id, and ids of other contacts with that e-mail (null: none).
select
    s.lead_id, l.email, s.remote_id,
    (
        select array_agg(o.remote_id order by o.remote_id)
        from leadsync.reconciled as o
        where o.run = $2 and o.email = l.email and not o.archived
    ) as others
from leadsync.lead_sync as s
join leadsync.leads as l on l.lead_id = s.lead_id
where s.destination = $1
    and s.state = 'synced'
    -- What was sent since may have been made behind the page where it belongs.
    and s.sent_at < $3
    and s.lead_id > $5
    and not exists (
        select from leadsync.reconciled as r
        where r.run = $2 and r.remote_id = s.remote_id and not r.archived
    )
    and (
        s.remote_id is not null
        or not exists (select from leadsync.reconciled as r where r.run = $2 and r.email = l.email and not r.archived)
    )
order by s.lead_id
limit $4;
