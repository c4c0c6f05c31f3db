-- A withdrawn step leaves a job but no component: its number must not be given again, or the next one's job has the same id.
alter table runs add column numbers bigint not null default 0;  -- every component number below this one was given, whether a row tells so or not
-- Runs of earlier releases that have such jobs: no component has more numbers than the run has components and jobs together.
update runs set numbers = coalesce((select max(c.number) from run_components c where c.run_id = runs.id), 0)
                        + (select count(*) from jobs j where j.run_id = runs.id) + 1
where status in ('initiating', 'pending', 'running', 'terminating');
