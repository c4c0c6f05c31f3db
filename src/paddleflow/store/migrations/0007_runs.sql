-- Runs of pipelines: what was asked for, what became of each component, artifacts, and results that may be used again.
create table runs (
    seq          $SEQUENCE,                      -- position in lists; the number in its id
    id           text not null unique,           -- run-<six digits of seq>
    name         text not null,                  -- given by who asked for it, else the pipeline's
    user_name    text not null,                  -- whose run it is: its jobs are this user's
    source       text not null,                  -- where the document came from: a path, <pipeline>-<version>, or the md5 of its text
    fs_id        text not null,                  -- filesystems.id of the main storage; empty: none
    fs_name      text not null,                  -- its name as the run says it
    description  text not null,                  -- free text for people
    document     text not null,                  -- the pipeline as it was sent, YAML or JSON
    pipeline     text not null,                  -- JSON: the pipeline as it runs, checked and bound (runs/codec.py)
    parameters   text not null,                  -- JSON object: parameters given for this run
    docker_env   text not null,                  -- image given for this run; empty: the document's
    disabled     text not null,                  -- components given as disabled for this run, a comma list
    schedule_id  text not null,                  -- schedules.id that made it; empty: a person did
    scheduled_at double precision,               -- the slot it was made for
    retry_of     text not null,                  -- runs.id whose results it goes on with; empty: none
    breakpoints  text not null,                  -- JSON list of dotted names: it pauses before these
    status       text not null,                  -- see runs/model.py: RunStatus
    message      text not null,                  -- why it is in this status, for a person
    stop         integer not null default 0,     -- 1: asked to stop; 2: at once, without its post-process
    created_at   double precision not null,      -- when it was asked for
    activated_at double precision,               -- when the engine took it up
    finished_at  double precision,               -- when it reached a final status
    updated_at   double precision not null,      -- last change
    touched      bigint not null default 1,      -- raised by everyone but the engine when the engine must look at the row
    seen         bigint not null default 0       -- the value of touched that the engine has dealt with
);
create index runs_unseen on runs (seq) where touched > seen;
create index runs_active on runs (status, seq) where status in ('initiating', 'pending', 'running', 'terminating');
create index runs_by_user on runs (user_name, seq);
create index runs_by_schedule on runs (schedule_id, seq);

-- Components of runs that have begun or will never begin: a row for each element of a loop, and for each dag.
create table run_components (
    run_id       text not null,                  -- runs.id
    number       bigint not null,                -- its number in the run, from 1
    parent       bigint not null,                -- number of the dag it is in; 0: the entry points, -1: post_process
    name         text not null,                  -- as the document calls it
    full_name    text not null,                  -- dotted from the entry points on, with the numbers of loop elements
    kind         text not null,                  -- step | dag
    seq          integer not null,               -- which element of its loop; 0 without a loop
    status       text not null,                  -- see runs/model.py: ComponentStatus
    message      text not null,                  -- why it is in this status, for a person
    job_id       text not null,                  -- jobs.id of its last try, or of the step it was served from; empty: none yet
    tries        integer not null,               -- how often it was started
    not_before   double precision,               -- the next try waits until then
    details      text not null,                  -- JSON: command, environment, image and inputs as they were when it started
    parameters   text not null,                  -- JSON object: its parameters, rendered
    outputs      text not null,                  -- JSON object: output artifact → path on the main storage
    first_fp     text not null,                  -- fingerprint of what it does; empty: not cached
    second_fp    text not null,                  -- fingerprint of the files it reads
    parts        text not null,                  -- JSON object: part of the fingerprints → its own hash
    reused_run   text not null,                  -- runs.id whose result it was served from; empty: it ran
    reused_job   text not null,                  -- jobs.id whose result it was served from
    misses       text not null,                  -- JSON list: parts that differ from its last result, when there was no hit
    started_at   double precision,               -- when its first process ran
    finished_at  double precision,               -- when it reached a final status
    primary key (run_id, number)
);
create index run_components_reused on run_components (reused_run) where reused_run <> '';

-- Loops whose elements are known.
create table run_loops (
    run_id       text not null,                  -- runs.id
    parent       bigint not null,                -- number of the dag that the component is in
    name         text not null,                  -- the component
    items        text not null,                  -- JSON list: its elements
    primary key (run_id, parent, name)
);

-- Files and folders that steps read or made. Never changed; a row goes with its run.
create table artifacts (
    seq          $SEQUENCE,                      -- position in lists
    run_id       text not null,                  -- runs.id
    fs_id        text not null,                  -- filesystems.id that it lies on
    fs_name      text not null,                  -- its name as the run says it
    user_name    text not null,                  -- whose run it was
    path         text not null,                  -- on that storage; several, joined by commas, where a loop made them
    step         text not null,                  -- full name of the component
    job_id       text not null,                  -- jobs.id of the job that read or made it
    kind         text not null,                  -- input | output
    name         text not null,                  -- of the artifact in the step
    hash         text not null,                  -- sha256 of the content, of a folder that of its listing; empty: not there
    size         bigint not null,                -- bytes in all
    meta         text not null,                  -- file | folder | missing | reused
    created_at   double precision not null,      -- when it was noted
    updated_at   double precision not null       -- the same
);
create index artifacts_by_run on artifacts (run_id, seq);
create index artifacts_by_path on artifacts (fs_id, path);
create index artifacts_by_user on artifacts (user_name, seq);

-- Results that a later run may use instead of running a step. Written when the step has succeeded.
create table run_caches (
    seq          $SEQUENCE,                      -- position in lists; the number in its id
    id           text not null unique,           -- cch-<six digits of seq>
    first_fp     text not null,                  -- fingerprint of what the step does
    second_fp    text not null,                  -- fingerprint of the files it reads
    parts        text not null,                  -- JSON object: part of the fingerprints → its own hash
    run_id       text not null,                  -- runs.id that ran it
    source       text not null,                  -- runs.source of that run
    pipeline     text not null,                  -- name of the pipeline
    step         text not null,                  -- full name of the step
    job_id       text not null,                  -- jobs.id that ran it
    fs_id        text not null,                  -- filesystems.id of the main storage; empty: none
    fs_name      text not null,                  -- its name as the run says it
    user_name    text not null,                  -- whose results they are: only their owner's runs use them
    expired_time bigint not null,                -- seconds that the result counts; -1: for ever
    outputs      text not null,                  -- JSON object: output artifact → [path, hash]
    created_at   double precision not null,      -- when the step succeeded
    updated_at   double precision not null       -- the same
);
create index run_caches_by_fp on run_caches (first_fp, user_name, fs_id);
create index run_caches_by_step on run_caches (user_name, pipeline, step, seq);
create index run_caches_by_run on run_caches (run_id, seq);

-- A job that runs a step lives as long as its run.
alter table jobs add column run_id text;         -- runs.id of the run whose step it runs; null: it is nobody's
create index jobs_by_run on jobs (run_id, seq) where run_id is not null;
