-- Schedules: registered pipelines that run at the times of a crontab. The id that clients see is schedule-<seq>, six digits
-- at least. A slot is a moment of the crontab; what became of each is a row of runs (status skipped: it was left out).
create table schedules (
    seq             $SEQUENCE,                   -- position in lists, and the number in the id
    name            text not null,               -- see base/names.py: SCHEDULE; unique per user; the name of its runs
    description     text not null,               -- for people; at most 256 characters
    pipeline        text not null,               -- id of the registered pipeline: ppl-<pipelines.seq>
    version         text not null,               -- pipeline_versions.number; neither can be deleted while this is running or paused
    user_name       text not null,               -- owner: users.name; its runs are this user's
    crontab         text not null,               -- as it was given; see schedules/timetable.py
    timezone        text not null,               -- zone that the crontab means; empty: the server's own
    catchup         integer not null,            -- 0: of the slots that are due only the newest runs
    expire_interval bigint not null,             -- seconds after which a slot is left out; 0: never
    concurrency     bigint not null,             -- most runs at once; 0: any number
    policy          text not null,               -- suspend | replace | skip: what becomes of a slot that finds no room
    start_at        double precision,            -- slots come after this moment; null: after it was made
    end_at          double precision,            -- slots come up to this moment; null: for ever
    anchor_at       double precision not null,   -- @every counts from here: start_at, or created_at
    status          text not null,               -- see schedules/model.py: ScheduleStatus
    message         text not null,               -- why it is in this status, or what kept its last slot from running
    next_at         double precision,            -- the oldest slot that nothing was decided about; never goes back; null: there is none
    look_at         double precision,            -- when the engine must look again; null: when something happens
    suspended       integer not null,            -- 1: a slot is due and waits for a run to end
    created_at      double precision not null,   -- when it was made
    updated_at      double precision not null,   -- last change
    unique (user_name, name)
);
create index schedules_by_look on schedules (look_at) where status = 'running';
create index schedules_by_pipeline on schedules (pipeline);
