-- What goes wrong at the CRMs, by cause, with an example.
-- destination (text, optional): only this one
select f.destination, f.state, f.kind, f.code, f.leads, f.max_attempts, f.last_at, f.message, f.example_email
from sync_failures as f
where :'destination' = '' or f.destination = :'destination'
order by f.leads desc, f.destination, f.code;
