-- What jobs whose number of members may change held over time; what others hold is in jobs.needs.
create table job_sizes (
    job_id       text not null,                  -- jobs.id
    at           double precision not null,      -- when it came to hold this
    scalars      text not null,                  -- JSON {resource: thousandths}, until the next row or its end
    primary key (job_id, at)
);
