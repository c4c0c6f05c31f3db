-- Tokens with names and scopes, failed logins by address, and the audit log.
alter table tokens add column name text not null default '';              -- of a token made for a script; empty: made by a login
alter table tokens add column scope text not null default 'admin';        -- read | submit | admin: what it may be used for
create unique index tokens_by_name on tokens (user_name, name) where name <> '';
alter table login_failures add column address text not null default '';   -- where it was tried from
create index login_failures_by_address on login_failures (address, failed_at);

-- Who changed what: one row per request that may change something, besides submissions, which jobs and runs tell. Never updated.
create table audit (
    seq        $SEQUENCE,                  -- position in the log
    at         double precision not null,  -- when it was answered
    user_name  text not null,              -- who called; empty: nobody, as at a login
    address    text not null,              -- where the request came from
    method     text not null,              -- POST | PUT | DELETE
    path       text not null,              -- of the URL, without its query
    status     integer not null,           -- of the answer
    request_id text not null               -- of the answer and of the server's log lines
);
create index audit_by_user on audit (user_name, seq);
