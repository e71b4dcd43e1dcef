-- Empty tables for the demo's textbook handler: the events it processed, the contacts it made.
drop schema if exists leadsync_textbook cascade;
create schema leadsync_textbook;
create table leadsync_textbook.processed_events (event_id text primary key);
create table leadsync_textbook.contacts (id bigint generated always as identity primary key, email text not null, remote_id text not null);
create index contacts_email on leadsync_textbook.contacts (email);
comment on schema leadsync_textbook is 'Made by `leadsync demo` to show what check-then-create does; safe to drop';
