-- One lead: the history of its values.
-- lead (text): its address or its id
-- field (text, optional): only this one
select c.changed_at, c.version, c.field, c.from_value, c.to_value, c.to_source as source, c.to_occurred_at as occurred_at
from lead_changes as c
where c.lead_id = case
    when :'lead' ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then (:'lead'::text)::uuid
    else (select l.lead_id from leads as l where l.email = lower(btrim(:'lead')))
end
    and (:'field' = '' or c.field = :'field')
order by c.version, c.field;
