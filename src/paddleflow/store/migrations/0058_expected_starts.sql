-- When the jobs that have waited longest in a queue of several clusters would start on each of them, as the cluster's engine forecasts.
create table expected_starts (
    job_id    text not null,              -- jobs.id
    cluster   text not null,              -- where it would start
    queue     text not null,              -- name of the job's queue
    at        double precision not null,  -- when this was computed
    starts_at double precision,           -- the middle of the possible starts; null: it never starts there as things are
    beyond    integer not null,           -- 1: later than starts_at, where the computation was cut off
    rests_on  text not null,              -- a job that must end first and whose duration is not known, so that starts_at is a guess; or empty
    primary key (job_id, cluster)
);
create index expected_starts_by_cluster on expected_starts (cluster);
create index expected_starts_by_queue on expected_starts (queue);
