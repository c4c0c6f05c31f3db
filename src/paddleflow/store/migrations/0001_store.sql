-- What the store itself needs: leases, the event log, counters.

-- Who may act on something that only one process at a time may act on.
create table leases (
    name text primary key,  -- what is leased, such as "engine"
    holder text not null,  -- who has it, for people; empty when it was given back
    token bigint not null,  -- grows by one with each new holder: a write guarded by an old token touches nothing
    expires_at double precision not null  -- moment after which anybody may take it
);

-- Everything that happened, in the order in which it was committed; written in the transaction that made it happen.
create table events (
    seq $SEQUENCE,  -- position in the log; grows, with gaps
    kind text not null,  -- sort of thing it happened to, such as "job"
    subject text not null,  -- id of that thing
    at double precision not null,  -- moment
    type text not null,  -- what happened, a word
    data text not null  -- JSON object with the rest
);
create index events_by_subject on events (kind, subject, seq);

-- Numbers that grow by name; used as the version of a configuration that processes keep in memory.
create table counters (
    name text primary key,  -- what is counted
    value bigint not null  -- never goes down
);
