-- Whether delivery $1 is archived.
-- Result: one boolean.
select exists (select from leadsync.deliveries as a where a.delivery_id = $1) as archived;
