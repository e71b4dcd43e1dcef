create schema if not exists leadsync;
create table leadsync.leads(email text primary key);
