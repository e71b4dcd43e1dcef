-- Deliveries are looked through from the newest on, and by the lead that they speak about.

create index deliveries_received on leadsync.deliveries (received_at, delivery_id);
comment on index leadsync.deliveries_received is 'Pages of GET /v1/deliveries';

-- Without a list of pending entries: whoever fills it up would have to sort all of them in.
create index deliveries_leads on leadsync.deliveries using gin (lead_ids) with (fastupdate = off);
comment on index leadsync.deliveries_leads is 'Everything that arrived about one lead';

create index deliveries_rejected_received on leadsync.deliveries (received_at, delivery_id)
    where outcome = 'rejected' or items @> '[{"outcome": "rejected"}]';
comment on index leadsync.deliveries_rejected_received is 'Pages of rejected deliveries of all sources';
