-- One lead: everything that happened, in order.
-- lead (text): its address or its id
select t.at, t.event, t.who, t.version, t.summary, t.detail, t.delivery_id
from lead_timeline as t
where t.lead_id = case
    when :'lead' ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then (:'lead'::text)::uuid
    else (select l.lead_id from leads as l where l.email = lower(btrim(:'lead')))
end
order by t.at, t.event;
