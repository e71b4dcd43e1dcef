-- One lead: every value, and where it comes from.
-- lead (text): its address or its id
select f.field, f.value, f.occurred_at, f.source, f.trust, f.changed_at, f.delivery_id
from lead_fields as f
where f.lead_id = case
    when :'lead' ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then (:'lead'::text)::uuid
    else (select l.lead_id from leads as l where l.email = lower(btrim(:'lead')))
end
order by f.field;
