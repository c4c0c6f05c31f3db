-- name: insert_run
-- A new run; its id is made of the position that this gives.
insert into runs (id, name, user_name, source, fs_id, fs_name, description, document, pipeline, parameters, docker_env,
                  disabled, schedule_id, scheduled_at, retry_of, breakpoints, status, message, created_at, finished_at,
                  updated_at, touched, seen)
values (:id, :name, :user_name, :source, :fs_id, :fs_name, :description, :document, :pipeline, :parameters, :docker_env,
        :disabled, :schedule_id, :scheduled_at, :retry_of, :breakpoints, :status, :message, :created_at, :finished_at,
        :created_at, :touched, 0)
returning seq

-- name: name_run
-- The id that belongs to a position.
update runs set id = :id where seq = :seq

-- name: run_by_id
-- One run, whoever owns it.
select * from runs where id = :id

-- name: run_status
-- The status of a run.
select status from runs where id = :id

-- name: unseen_runs
-- Runs that the engine has not seen since somebody else changed them.
select seq, id, touched, status, message, stop, breakpoints from runs where touched > seen order by seq limit :limit

-- name: active_runs
-- Runs that have not ended: what the engine takes up again after a restart.
select * from runs where status in ('initiating', 'pending', 'running', 'terminating') order by seq

-- name: count_active_runs
-- How many runs are in each status that is not final, for the metrics.
select status, count(*) as runs from runs
where status in ('initiating', 'pending', 'running', 'terminating') group by status

-- name: mark_run_seen
-- The engine has dealt with the row as it was.
update runs set seen = :touched where seq = :seq and seen < :touched

-- name: update_run
-- The state that the machine gave.
update runs set status = :status, message = :message, activated_at = coalesce(activated_at, :activated_at),
                finished_at = :finished_at, updated_at = :at
where id = :id

-- name: keep_numbers
-- Component numbers below this one are not given again.
update runs set numbers = :numbers where id = :id and numbers < :numbers

-- name: ask_run_to_stop
-- Asks the engine to end a run: with 1 after its post-process, with 2 without it.
update runs set stop = :stop, status = 'terminating', message = :message, updated_at = :at, touched = touched + 1
where id = :id and status in ('initiating', 'pending', 'running', 'terminating') and stop < :stop

-- name: change_breakpoints
-- Conditions a run pauses from now on.
update runs set breakpoints = :breakpoints, updated_at = :at, touched = touched + 1 where id = :id

-- name: paused_components
-- Components of a run that wait at a breakpoint.
select full_name from run_components where run_id = :run_id and status = 'pending' and message = :message order by number

-- name: components_of_run
-- Everything that is known of a run's components, in the order in which they began.
select * from run_components where run_id = :run_id order by number

-- name: places_of_run
-- As much of a run's components as the engine needs to go on with it, with what became of their jobs.
select c.number, c.parent, c.name, c.kind, c.seq, c.status, c.message, c.job_id, c.tries, c.not_before, c.parameters,
       c.outputs, c.first_fp, c.second_fp, c.parts, c.misses, c.started_at, j.status as job_status, j.message as job_message,
       j.started_at as job_started_at, j.gated as job_gated, j.cluster as job_cluster
from run_components c
left join jobs j on j.id = c.job_id and c.status in ('pending', 'running', 'terminating')
where c.run_id = :run_id order by c.number

-- name: states_of_jobs
-- How jobs of steps on other clusters stand.
select id, status, message, started_at, finished_at from jobs where id in (select value ->> 0 from json_each(:ids))

-- name: release_job
-- The scheduler of another cluster may see a job of a step.
update jobs set gated = 0, updated_at = :at, touched = touched + 1 where id = :id and gated = 1

-- name: last_exit_code
-- How the first member of a job that failed has ended.
select exit_code from tasks where job_id = :job_id and status = 'failed' order by finished_at limit 1

-- name: loops_of_run
-- The elements of a run's loops.
select parent, name, items from run_loops where run_id = :run_id

-- name: put_component
-- A component begins, changes or ends.
insert into run_components (run_id, number, parent, name, full_name, kind, seq, status, message, job_id, tries, not_before,
                            details, parameters, outputs, first_fp, second_fp, parts, reused_run, reused_job, misses,
                            started_at, finished_at)
values (:run_id, :number, :parent, :name, :full_name, :kind, :seq, :status, :message, :job_id, :tries, :not_before,
        :details, :parameters, :outputs, :first_fp, :second_fp, :parts, :reused_run, :reused_job, :misses, :started_at,
        :finished_at)
on conflict (run_id, number) do update set
    status = excluded.status, message = excluded.message, job_id = excluded.job_id, tries = excluded.tries,
    not_before = excluded.not_before,
    details = case when excluded.details = '' then run_components.details else excluded.details end,
    parameters = case when excluded.parameters = '' then run_components.parameters else excluded.parameters end,
    outputs = excluded.outputs, first_fp = excluded.first_fp, second_fp = excluded.second_fp, parts = excluded.parts,
    reused_run = excluded.reused_run, reused_job = excluded.reused_job, misses = excluded.misses,
    started_at = excluded.started_at, finished_at = excluded.finished_at

-- name: end_components
-- The components of a run that cannot be taken up again.
update run_components set status = 'terminated', message = :message, finished_at = :at
where run_id = :run_id and status in ('pending', 'running', 'terminating')

-- name: forget_component
-- A component that had not begun after all.
delete from run_components where run_id = :run_id and number = :number

-- name: insert_loop
-- The elements of a loop, once they are known.
insert into run_loops (run_id, parent, name, items) values (:run_id, :parent, :name, :items)
on conflict (run_id, parent, name) do nothing

-- name: served_runs
-- The other runs that were served from cached results of this one.
select distinct run_id from run_components where reused_run = :run_id and reused_job <> '' and run_id <> :run_id
order by run_id limit :limit

-- name: waiting_reasons
-- Why jobs of a run's steps wait.
select id, message from jobs where run_id = :run_id and status in ('init', 'pending')

-- name: count_reusers
-- How many other runs were served from this one.
select count(distinct run_id) as runs from run_components where reused_run = :run_id and run_id <> :run_id

-- name: delete_run
-- A run that has ended, for good.
delete from runs where id = :run_id

-- name: delete_components
-- The components of a run that is deleted.
delete from run_components where run_id = :run_id

-- name: delete_loops
-- The loops of a run that is deleted.
delete from run_loops where run_id = :run_id

-- name: delete_run_artifacts
-- The artifacts of a run that is deleted.
delete from artifacts where run_id = :run_id

-- name: delete_run_caches
-- The results of a run that is deleted: their files go with it.
delete from run_caches where run_id = :run_id
-- name: active_of_schedule
-- A user's runs of a schedule that have not ended, oldest first.
select id, status from runs
where schedule_id = :schedule_id and user_name = :user_name
  and status in ('initiating', 'pending', 'running', 'terminating')
order by seq
