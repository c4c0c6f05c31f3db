-- Jobs and their members. A row is the truth; the engine's memory is rebuilt from these tables at start.
create table jobs (
    seq          $SEQUENCE,                      -- position in lists; grows with submission
    id           text not null unique,           -- job-<16 hex>, or what the caller chose
    name         text not null,                  -- free text for people
    user_name    text not null,                  -- who submitted it
    queue        text not null,                  -- name of its queue
    kind         text not null,                  -- single | distributed | workflow
    framework    text not null,                  -- standalone | paddle | pytorch | …
    priority     text not null,                  -- VERY_LOW | LOW | NORMAL | HIGH | VERY_HIGH
    status       text not null,                  -- see jobs/model.py: JobStatus
    message      text not null,                  -- why it is in this status, for a person
    members      text not null,                  -- JSON: the members, with flavours and storages resolved (jobs/model.py: Member)
    needs        text not null,                  -- JSON [[role, count, cpu, memory, {scalar: amount}], …]: all that the scheduler needs
    labels       text not null,                  -- JSON object; searchable copy in job_labels
    annotations  text not null,                  -- JSON object
    template     text,                           -- JSON: the extensionTemplate as it was given
    cpu          bigint not null,                -- requested in all, thousandths of a core
    memory       bigint not null,                -- requested in all, bytes
    scalars      text not null,                  -- requested in all, JSON {name: thousandths}
    outcome      text,                           -- how it will end once its last member has ended; null: not decided
    placed       integer not null default 0,     -- 1: members have their nodes, resources are held
    attempt      integer not null default 0,     -- how often the whole gang was placed
    not_before   double precision,               -- a restart waits until then
    accepted_at  double precision not null,      -- when it was submitted
    started_at   double precision,               -- when its first member ran
    finished_at  double precision,               -- when it reached a final status
    updated_at   double precision not null,      -- last change of status, message or labels
    ttl          double precision,               -- seconds that it is kept after its end; null: as the settings say
    delete_at    double precision,               -- when it is deleted by itself; null: never
    touched      bigint not null default 1,      -- raised by everyone but the engine when the engine must look at the row
    seen         bigint not null default 0       -- the value of touched that the engine has dealt with
);
create index jobs_unseen on jobs (seq) where touched > seen;
create index jobs_active on jobs (queue, status) where status in ('init', 'pending', 'running', 'terminating', 'preempting');
create index jobs_by_status on jobs (status, seq);
create index jobs_by_user on jobs (user_name, seq);
create index jobs_by_queue on jobs (queue, seq);
create index jobs_by_update on jobs (updated_at);
create index jobs_to_delete on jobs (delete_at) where delete_at is not null;

-- The members of jobs, each with its place and how it ended.
create table tasks (
    job_id       text not null,                  -- jobs.id
    role         text not null,                  -- worker, pserver, …
    idx          integer not null,               -- number within the role, from 0
    attempt      integer not null,               -- jobs.attempt that placed it
    status       text not null,                  -- see jobs/model.py: TaskStatus
    node         text not null,                  -- where it was placed
    devices      text not null,                  -- JSON [[resource, [numbers]], …]
    ports        text not null,                  -- JSON [port, …] given to it alone
    ready        integer not null default 0,     -- 1: members of later stages may rely on it
    exit_code    integer,                        -- of its process; null: not ended, or not known
    message      text not null,                  -- how it ended, for a person
    started_at   double precision,               -- when its process ran
    finished_at  double precision,               -- when its process ended
    cpu_seconds  double precision,               -- used in all, once ended
    peak_memory  bigint,                         -- bytes at most, once ended
    primary key (job_id, role, idx)
);

-- Labels of jobs, for searching.
create table job_labels (
    job_id       text not null,                  -- jobs.id
    key          text not null,                  -- label key
    value        text not null,                  -- label value
    primary key (job_id, key)
);
create index job_labels_by_value on job_labels (key, value);

-- Which jobs use which storages.
create table job_storages (
    job_id       text not null,                  -- jobs.id
    fs_id        text not null,                  -- filesystems.id that it mounts
    primary key (job_id, fs_id)
);
create index job_storages_by_fs on job_storages (fs_id);
