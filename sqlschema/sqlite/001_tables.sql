-- oncectl schema, version 1, SQLite. The same tables and names as the
-- PostgreSQL file beside it, so that both can be laid side by side.
-- Times are UTC text, YYYY-MM-DDTHH:MM:SS.SSSZ, which compares as it sorts.

-- One row. An older binary than oldest_binary is refused: both are schema
-- versions, as each binary knows the one it was built with.
create table if not exists schema_info (
    singleton     integer primary key default 1 check (singleton = 1),
    version       integer not null,
    oldest_binary integer not null,
    applied_at    text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- The unique insert that decides the winner. Without a rowid the primary key is
-- the table: one tree to write per claim.
create table if not exists processed_events (
    event_id     text collate binary primary key not null,
    claimed_at   text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    token        text,
    run_id       integer,
    owner        text,
    payload_hash text,
    target       text, -- the URL host of a send; null for other claims
    expires_at   text,
    outcome      text check (outcome in ('delivered', 'failed', 'in_doubt')),
    finished_at  text
) without rowid;

-- Unfinished and doubtful claims are few; finding them must not read the many.
create index if not exists processed_events_unfinished
    on processed_events (expires_at)
    where expires_at is not null and outcome is null;
create index if not exists processed_events_in_doubt
    on processed_events (claimed_at)
    where outcome = 'in_doubt';

create table if not exists failed_jobs (
    id           integer primary key autoincrement,
    kind         text not null check (kind in ('run', 'claim', 'send', 'outbox')),
    name         text not null,
    event_id     text,
    payload_hash text,
    payload      blob,
    request      text,
    last_error   text not null check (last_error <> ''),
    attempts     integer not null default 1,
    certainty    text not null check (certainty in ('failed', 'in_doubt')),
    failed_at    text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    retry_at     text,
    resolved_at  text,
    resolution   text
);
create index if not exists failed_jobs_unresolved
    on failed_jobs (id) where resolved_at is null;
create index if not exists failed_jobs_event
    on failed_jobs (event_id) where resolved_at is null;
-- Whether a person has dealt with an event in doubt.
create index if not exists failed_jobs_closed
    on failed_jobs (event_id) where resolved_at is not null;

create table if not exists outbox (
    id           integer primary key autoincrement,
    topic        text not null,
    payload      text not null,
    created_at   text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    sent_at      text,
    key          text,
    attempts     integer not null default 0,
    doubtful     integer not null default 0, -- some try may have been processed
    -- With a token: whose the row is until then. Without: when to try again.
    leased_until text,
    token        text,
    last_error   text,
    failed_at    text
);
create index if not exists outbox_pending
    on outbox (id) where sent_at is null and failed_at is null;
-- The first unsent row of each key, and those without one in order.
create index if not exists outbox_keys
    on outbox (key, id) where sent_at is null;
-- Which keys somebody is publishing: few, however many rows wait.
create index if not exists outbox_leased
    on outbox (key, id) where leased_until is not null and sent_at is null;
-- What oncectl added itself and nobody has taken yet: an addition whose answer
-- was lost finds its row.
create index if not exists outbox_added
    on outbox (token) where token is not null and leased_until is null and sent_at is null;

create table if not exists runs (
    id           integer primary key autoincrement,
    lock         text not null,
    lock_key     integer not null,
    key          text,
    scheduled_at text,
    token        text not null,
    host         text not null,
    host_id      text,
    pid          integer not null,
    server       text, -- the lock's file; another one later means that it was removed
    started_at   text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    finished_at  text,
    outcome      text,
    exit_code    integer
);
create index if not exists runs_lock on runs (lock_key, id);
create index if not exists runs_key
    on runs (lock_key, key) where outcome = 'succeeded' and key is not null;
create index if not exists runs_unfinished
    on runs (id) where finished_at is null;
-- When a lock last succeeded, however often it has failed since.
create index if not exists runs_succeeded
    on runs (lock_key, id) where outcome = 'succeeded';

-- Who may claim under a lock: the run that began last. Writers are serial here,
-- so a claim that reads its row in its own transaction is fenced.
create table if not exists fences (
    lock_key integer primary key,
    run_id   integer not null,
    token    text not null,
    -- No job of the lock may start before: the wait for an unfinished run, which
    -- outlives a waiter that was killed or told to end.
    not_before text
);

insert into schema_info (singleton, version, oldest_binary) values (1, 1, 1)
    on conflict (singleton) do nothing;
