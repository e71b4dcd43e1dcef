-- Leads that may be written to, for a mailing.
-- days (integer, 30): leads created in so many days, today included
-- tag (text, optional): only with this tag
-- limit (integer, 1000): how many
select l.email, l.first_name, l.last_name, l.company, l.language, l.country, l.first_source, l.created_at
from leads as l
where l.marketing_consent and l.created_day > current_date - :'days'::integer and (:'tag' = '' or :'tag' = any (l.tags))
order by l.created_at desc, l.email
limit :'limit'::integer;
