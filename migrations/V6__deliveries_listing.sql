-- Deliveries are looked through from the newest on.

create index deliveries_received on leadsync.deliveries (received_at, delivery_id);
comment on index leadsync.deliveries_received is 'Pages of GET /v1/deliveries';
