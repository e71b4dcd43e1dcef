-- Whether the schema and its migration history are there. One row. Needs the right to use the schema, if there is one.
select
    to_regnamespace('leadsync') is not null as has_schema,
    to_regclass('leadsync.schema_history') is not null as has_history
