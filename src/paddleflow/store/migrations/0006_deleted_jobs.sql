-- Jobs that were deleted before the engine had seen that they ended: it still has them in its memory and must be told.
create table deleted_jobs (
    job_id       text primary key                -- jobs.id of a row that is gone; the engine takes the note away
);
