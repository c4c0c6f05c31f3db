-- Who may call, and what they may use.
create table users (
    seq            $SEQUENCE,                  -- position in lists; grows with creation
    name           text not null unique,       -- 4 to 16 letters or digits; 'root' (in lower case) is the administrator
    password_hash  text not null,              -- argon2id, in the encoded form that carries its parameters
    created_at     double precision not null,  -- when it was made
    updated_at     double precision not null   -- last change of the password
);

-- Who is logged in: one row a token. Only hashes are kept.
create table tokens (
    hash           text primary key,           -- SHA-256 of the token in hex; the token itself is kept nowhere
    user_name      text not null,              -- users.name
    created_at     double precision not null,  -- when it was given
    expires_at     double precision not null   -- from then on it does not count; rows beyond it may be removed
);
create index tokens_by_user on tokens (user_name);
create index tokens_by_expiry on tokens (expires_at);

-- Failed logins of the last while, to slow down guessing; shared by all servers.
create table login_failures (
    user_name      text not null,              -- the name that was tried, whether or not such a user exists
    failed_at      double precision not null   -- when; rows older than the setting access.login_window may be removed
);
create index login_failures_by_user on login_failures (user_name, failed_at);
create index login_failures_by_time on login_failures (failed_at);

-- What users may use beyond their own things.
create table grants (
    seq            $SEQUENCE,                  -- position in lists; grows with creation
    id             text not null unique,       -- grant-<8 hex>
    user_name      text not null,              -- users.name of who may use the resource
    resource_type  text not null,              -- queue | user | fs
    resource_id    text not null,              -- queues.name, users.name or filesystems.id
    created_at     double precision not null,  -- when it was given
    unique (user_name, resource_type, resource_id)
);
create index grants_by_resource on grants (resource_type, resource_id);
