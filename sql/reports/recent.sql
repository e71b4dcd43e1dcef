-- The leads created last.
-- limit (integer, 20): how many
select l.created_at, l.email, l.full_name, l.company, l.phone, l.first_source, l.utm_campaign, l.lifecycle_stage
from leads as l
where l.created_day > current_date - 7
order by l.created_at desc, l.email
limit :'limit'::integer;
