-- Servers that share this database: where each can be asked by the others.

-- One row per server that runs, or ran and did not take leave.
create table servers (
    id text primary key,  -- as in leases.holder: names the data folder
    address text not null,  -- URL at which the other servers reach it
    seen_at double precision not null  -- moment at which it last said that it runs
);
