-- outbox.sql: an application's change and the message about it, in one
-- transaction: both are there, or neither is.
--
-- Before, once, as the owner of the tables: oncectl schema apply. The application's
-- role needs no more than
--
--   grant usage on schema oncectl to app;
--   grant insert (topic, key, payload) on oncectl.outbox to app;
--   grant usage on sequence oncectl.outbox_id_seq to app;
--
-- After: oncectl outbox publish --url https://hooks.example/in   (see cron.d/oncectl)
\set ON_ERROR_STOP on

create table if not exists orders (
	id      bigint primary key,
	total   numeric not null,
	paid_at timestamptz
);
insert into orders (id, total) values (4711, 12.50) on conflict do nothing;

begin;

-- Only the transaction that really paid the order tells of it: a second one
-- updates no row, and so inserts no message.
with paid as (
	update orders set paid_at = now() where id = 4711 and paid_at is null returning id, total, paid_at
)
insert into oncectl.outbox (topic, key, payload)
select
	'order.paid',
	'order/' || id,         -- messages of one key go out one at a time, in order
	jsonb_build_object('order', id, 'total', total, 'paid_at', paid_at)
from paid;

-- No request, no mail, no queue in here: whatever leaves now cannot be taken back
-- when the commit fails.
commit;

-- A message without a key, put in the order of nothing else.
insert into oncectl.outbox (topic, payload) values ('shop.opened', '{"day": "monday"}');
