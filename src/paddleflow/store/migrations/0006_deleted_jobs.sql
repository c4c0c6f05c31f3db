-- Jobs that were deleted before the engine had seen that they ended: it still has them in its memory and must be told.
create table deleted_jobs (
    seq          bigint primary key,             -- jobs.seq of a row that is gone; the engine takes the note away
    job_id       text not null                   -- jobs.id of that row; a later job may have the same
);
