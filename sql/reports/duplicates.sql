-- Leads that may be one person under different addresses, the newest first.
-- reason (text, phone): phone, or name_company
-- limit (integer, 50): how many groups
select d.reason, d.key, d.leads, d.emails, d.newest_at
from possible_duplicates as d
where d.reason = :'reason'
order by d.newest_at desc, d.key
limit :'limit'::integer;
