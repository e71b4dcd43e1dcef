-- Deliveries are looked through from the newest on, and by the lead that they speak about.

create index deliveries_received on leadsync.deliveries (received_at, delivery_id);
comment on index leadsync.deliveries_received is 'Pages of GET /v1/deliveries';

create index deliveries_leads on leadsync.deliveries using gin (lead_ids);
comment on index leadsync.deliveries_leads is 'Everything that arrived about one lead';
