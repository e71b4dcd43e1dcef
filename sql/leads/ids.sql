-- Ids of the leads of e-mails $1.
-- Result: email, lead_id.
select l.email, l.lead_id from leadsync.leads as l where l.email = any ($1::text[]);
