-- E-mails of leads that run $1 has seen at several contacts: up to $2 after e-mail $3.
-- Result: e-mail, ids of the contacts.
select r.email, array_agg(r.remote_id order by r.remote_id) as remote_ids
from leadsync.reconciled as r
where r.run = $1
    and not r.archived
    and r.email > $3
    and exists (select from leadsync.leads as l where l.email = r.email)
group by r.email
having count(*) > 1
order by r.email
limit $2;
