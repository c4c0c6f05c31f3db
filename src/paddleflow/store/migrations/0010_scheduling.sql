-- What the scheduler must still know of jobs after a restart of the engine: since when they hold their place, and who was
-- evicted or changed in size for the sake of others.
alter table jobs add column placed_at double precision;                     -- when it got the place that it has, or had last
alter table jobs add column preemptions integer not null default 0;         -- how often it made way for another job
alter table jobs add column evicted_at double precision;                    -- when it was last told to make way
alter table jobs add column evicted_by text not null default '';            -- jobs.id of the job for which it made way last
alter table jobs add column lost_seconds double precision not null default 0; -- of running, that evictions and new sizes cost it
alter table jobs add column resizes integer not null default 0;             -- how often it was started anew at another size
alter table jobs add column resized_at double precision;                    -- when members came or went last
alter table tasks add column leaving integer not null default 0;            -- 1: told to go while the others stay
