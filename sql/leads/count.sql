-- How many leads there are.
-- Result: one row, one number.
select count(*) as leads from leadsync.leads;
