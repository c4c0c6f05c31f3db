-- Named values of users that jobs are given, encrypted with the server's keys (store/encryption.py).
create table secrets (
    id         text primary key,           -- what the value is bound to when it is encrypted; stays when the value is set anew
    user_name  text not null,              -- whose it is
    name       text not null,              -- by which jobs ask for it
    value      text not null,              -- encrypted, in the context secret:<id>
    created_at double precision not null,  -- when it was first set
    updated_at double precision not null   -- when its value was set last
);
create unique index secrets_by_name on secrets (user_name, name);

-- What jobs were given: the encrypted values, kept as long as the job, because its log must hide them.
create table job_secrets (
    id     text primary key,  -- <id of the secret>/<number>
    job_id text not null,     -- the job
    value  text not null      -- encrypted in the context of the secret, as it was when the job started
);
create index job_secrets_by_job on job_secrets (job_id);
