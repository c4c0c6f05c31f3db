-- Jobs that wait for others to succeed (the field `after` of a job document).
alter table jobs add column after_jobs text not null default '';  -- JSON list of the ids, as they were given; empty: none

-- Who waits for whom.
create table job_dependencies (
    job_id   text not null,  -- the job that waits; it is gated as long as it has a row here
    after_id text not null,  -- the job that must succeed; its rows go when it ends
    primary key (job_id, after_id)
);
create index job_dependencies_by_earlier on job_dependencies (after_id);
