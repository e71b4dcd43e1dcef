-- Count further copies of archived deliveries. $1 delivery_id[], $2 copies[], $3 last received_at[], $4 outcome[],
-- $5 lead_ids[] (each the text of an array, null for none), $6 items[].
-- Leads that a delivery turns out to speak about (the mapping was mended) are added to those known. A delivery
-- that was rejected and now became a lead takes the new outcome, and so does each lead in it that has
-- another verdict than before.
-- The copies also count for the day on which they came, for people. Rows are locked in key order.
-- Result: the number of rows changed.
with repeat as (
    select *
    from unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::jsonb[]) as r (
        delivery_id, copies, last_received_at, outcome, lead_ids, items
    )
),
locked as (
    select a.delivery_id, a.week, a.source
    from leadsync.deliveries as a
    join repeat as r on r.delivery_id = a.delivery_id
    order by a.delivery_id, a.week
    for update of a
),
counted as (
    insert into leadsync.daily_counts as c (day, source, what, deliveries)
    select (r.last_received_at at time zone 'utc')::date, k.source, 'repeat', sum(r.copies)
    from (select distinct l.delivery_id, l.source from locked as l) as k
    join repeat as r on r.delivery_id = k.delivery_id
    where r.copies > 0
    group by 1, 2
    order by 1, 2
    on conflict (day, source, what) do update set deliveries = c.deliveries + excluded.deliveries
)
update leadsync.deliveries as a set
    copies = a.copies + r.copies,
    last_received_at = greatest(a.last_received_at, r.last_received_at),
    outcome = case when a.outcome = 'rejected' and r.outcome <> 'rejected' then r.outcome else a.outcome end,
    reason = case when a.outcome = 'rejected' and r.outcome <> 'rejected' then null else a.reason end,
    items = case
        when jsonb_typeof(a.items) = 'array' and jsonb_array_length(a.items) = jsonb_array_length(r.items) then (
            select jsonb_agg(
                case
                    when (known.item ->> 'outcome' = 'rejected') is distinct from (latest.item ->> 'outcome' = 'rejected')
                        or known.item -> 'reason' is distinct from latest.item -> 'reason'
                        or known.item -> 'field_errors' is distinct from latest.item -> 'field_errors'
                        then latest.item
                    else known.item
                end
                order by known.at
            )
            from jsonb_array_elements(a.items) with ordinality as known (item, at)
            join jsonb_array_elements(r.items) with ordinality as latest (item, at) on latest.at = known.at
        )
        else r.items
    end,
    lead_ids = case
        when r.lead_ids is null or a.lead_ids @> r.lead_ids::uuid[] then a.lead_ids
        else (select array_agg(distinct id order by id) from unnest(a.lead_ids || r.lead_ids::uuid[]) as id)
    end
from locked as k
join repeat as r on r.delivery_id = k.delivery_id
where a.delivery_id = k.delivery_id and a.week = k.week;
