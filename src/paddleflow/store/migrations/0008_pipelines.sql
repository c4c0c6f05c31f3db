-- Registered pipelines: documents kept under a name, so that runs and schedules can name them.
-- The id that clients see is ppl-<seq>, six digits at least; a number is never used again.
create table pipelines (
    seq          $SEQUENCE,                      -- position in lists, and the number in the id
    name         text not null,                  -- the document's name; unique per user
    description  text not null,                  -- for people; at most 256 characters
    user_name    text not null,                  -- owner: users.name
    versions     integer not null,               -- how many versions were ever made, deleted ones included; the next has this number + 1
    created_at   double precision not null,      -- when it was made
    updated_at   double precision not null,      -- when the last version came, or one was deleted
    unique (user_name, name)
);

-- The documents of a registered pipeline. A version never changes: runs that were made of it keep a copy of the text.
create table pipeline_versions (
    seq          $SEQUENCE,                      -- position in lists
    pipeline     bigint not null,                -- pipelines.seq
    number       integer not null,               -- 1, 2, …: the id of the version as clients see it; never used again
    fs_name      text not null,                  -- storage that the document was read from, as it was named; empty: it was sent
    yaml_path    text not null,                  -- path on that storage; empty: it was sent
    yaml         text not null,                  -- the document
    user_name    text not null,                  -- users.name of who brought this version
    created_at   double precision not null,      -- when it came
    unique (pipeline, number)
);
