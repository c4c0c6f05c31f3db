-- name: insert_jobs
-- New jobs that differ in nothing but id and name: the identities. An id that is taken already is a Conflict.
insert into jobs (id, name, user_name, queue, cluster, kind, framework, priority, status, message, members, member_sets, labels,
                  annotations, template, cpu, memory, scalars, accepted_at, updated_at, ttl, gated, after_jobs, array_id)
select value ->> 0, value ->> 1, :user_name, :queue, :cluster, :kind, :framework, :priority, :status, :message, :members, :member_sets, :labels,
       :annotations, cast(:template as text), :cpu, :memory, :scalars, :accepted_at, :accepted_at,
       cast(:ttl as double precision), cast(:gated as int), :after_jobs, cast(:array_id as text)
from json_each(:identities)

-- name: insert_step_job
-- The job of a run's step, as the engine makes it. Of its own cluster it has seen it already, and may have placed it too.
insert into jobs (id, name, user_name, queue, cluster, kind, framework, priority, status, message, members, member_sets, labels,
                  annotations, template, cpu, memory, scalars, accepted_at, updated_at, ttl, placed, placed_at, attempt,
                  gated, touched, seen, run_id)
values (:id, :name, :user_name, :queue, :cluster, :kind, :framework, :priority, :status, :message, :members, :member_sets, :labels,
        :annotations, :template, :cpu, :memory, :scalars, :accepted_at, :accepted_at, :ttl, :placed, :placed_at, :attempt,
        :gated, 1, :seen, :run_id)

-- name: positions
-- Where jobs are in lists.
select seq, id from jobs where id in (select value ->> 0 from json_each(:ids))

-- name: insert_label
-- The searchable copy of one label; the newest value counts.
insert into job_labels (job_id, key, value) values (:job_id, :key, :value)
on conflict (job_id, key) do update set value = excluded.value

-- name: insert_storage
-- Notes that a job uses a storage.
insert into job_storages (job_id, fs_id) values (:job_id, :fs_id) on conflict do nothing

-- name: job_by_id
-- One job, whoever owns it.
select * from jobs where id = :id

-- name: job_status
-- The status of a job.
select status from jobs where id = :id

-- name: job_owner
-- Whose a job is, and what became of it.
select user_name, status, message from jobs where id = :id

-- name: job_progress
-- How far a job is.
select status, attempt from jobs where id = :id

-- name: ids_taken
-- Which of these ids jobs have already.
select id from jobs where id in (select value ->> 0 from json_each(:ids))

-- name: tasks_of_job
-- The members of one job, in order.
select * from tasks where job_id = :job_id order by role, idx

-- name: unseen_jobs
-- Jobs of a cluster that its engine has not seen since somebody else changed them, with those that are gone altogether.
select seq, job_id as id, '' as queue, '' as user_name, '' as framework, '' as priority, '' as member_sets,
       cast(0 as double precision) as accepted_at, 0 as attempt, cast(null as double precision) as not_before,
       0 as gated, 0 as touched, 'deleted' as status, 0 as placed, '' as message
from deleted_jobs where cluster = :cluster
union all
select seq, id, queue, user_name, framework, priority, member_sets, accepted_at, attempt, not_before, gated, touched, status,
       placed, message
from jobs where touched > seen and cluster = :cluster
order by seq limit :limit

-- name: held_jobs
-- Jobs of a cluster that hold resources or are being ended: what its engine takes up again after a restart.
select * from jobs where cluster = :cluster and placed = 1 and status in $ACTIVE

-- name: tasks_of_held_jobs
-- The members of all jobs of a cluster that hold resources.
select t.* from tasks t join jobs j on j.id = t.job_id
where j.cluster = :cluster and j.placed = 1 and j.status in $ACTIVE

-- name: waiting_jobs
-- Jobs of a cluster that wait for resources, with no more than the scheduler needs to know.
select seq, id, queue, user_name, framework, priority, member_sets, accepted_at, attempt, not_before, gated, touched, status,
       placed, message
from jobs where cluster = :cluster and placed = 0 and status in $WAITING order by seq

-- name: movable_jobs
-- Jobs of a queue that wait on a cluster and may go to another: no steps of runs, which their engine may have in hand.
select seq, id, queue, user_name, framework, priority, member_sets, accepted_at, attempt, not_before, gated, touched, status,
       placed, message
from jobs
where cluster = :cluster and placed = 0 and status in $WAITING and queue = :queue and seq > :after
  and gated = 0 and run_id is null and accepted_at <= :before and (not_before is null or not_before <= :now)
order by seq limit :limit

-- name: move_job
-- A waiting job goes to another cluster, if nobody has changed it since it was looked at.
update jobs set cluster = :target, touched = touched + 1, updated_at = :at
where seq = :seq and touched = :touched and cluster = :source and placed = 0 and status in $WAITING

-- name: note_moved
-- Tells the engine of its cluster before that a job is gone which it may still have in mind.
insert into deleted_jobs (seq, job_id, cluster) values (:seq, :id, :cluster)
on conflict (seq) do update set cluster = excluded.cluster

-- name: delete_expected_starts
-- What a cluster has said about starts, before it says it anew.
delete from expected_starts where cluster = :cluster

-- name: insert_expected_start
-- When a job would start on a cluster.
insert into expected_starts (job_id, cluster, queue, at, starts_at, beyond, rests_on)
values (:id, :cluster, :queue, :at, :starts_at, :beyond, :rests_on)

-- name: expected_starts_of_queue
-- What all clusters say of the jobs of a queue that wait and may be moved, those that came first first.
select e.job_id as id, e.cluster, e.queue, e.at, e.starts_at, e.beyond, e.rests_on, j.seq, j.touched, j.cluster as waits_on
from expected_starts e join jobs j on j.id = e.job_id
where e.queue = :queue and j.queue = e.queue and j.placed = 0 and j.status in $WAITING and j.gated = 0 and j.run_id is null
order by j.seq

-- name: expected_starts_of_job
-- What all clusters say of one job.
select job_id as id, cluster, queue, at, starts_at, beyond, rests_on from expected_starts where job_id = :id

-- name: forget_expected_starts
-- A job of the queue was moved: for the others nothing is true any more.
delete from expected_starts where queue = :queue

-- name: waiting_classes
-- The same with one row for all jobs that are equal to the scheduler: their positions, ids and moments are JSON lists.
select queue, user_name, framework, priority, member_sets, attempt, not_before, gated, touched, status, message,
       json_group_array(seq) as seqs, json_group_array(id) as ids,
       json_group_array(json(printf('%!.17g', accepted_at))) as moments
from jobs where cluster = :cluster and placed = 0 and status in $WAITING
group by queue, user_name, framework, priority, member_sets, attempt, not_before, gated, touched, status, message

-- name: waiting_classes [postgres]
-- The same with one row for all jobs that are equal to the scheduler: their positions, ids and moments are JSON lists.
select queue, user_name, framework, priority, member_sets, attempt, not_before, gated, touched, status, message,
       cast(json_agg(seq) as text) as seqs, cast(json_agg(id) as text) as ids,
       cast(json_agg(accepted_at) as text) as moments
from jobs where cluster = :cluster and placed = 0 and status in $WAITING
group by queue, user_name, framework, priority, member_sets, attempt, not_before, gated, touched, status, message

-- name: placeable_jobs
-- What the engine needs to launch waiting jobs, as they are now.
select * from jobs
where seq in (select cast(value ->> 0 as bigint) from json_each(:seqs)) and placed = 0 and status in $WAITING

-- name: mark_waiting
-- The engine looked at new jobs and they have to wait, all for the same reason; which of them nobody changed meanwhile.
update jobs set status = 'pending', message = :message, updated_at = :at, gated = 0, seen = :touched
where seq in (select cast(value ->> 0 as bigint) from json_each(:seqs)) and touched = :touched
  and status in $WAITING and placed = 0
returning seq

-- name: mark_seen
-- The engine has dealt with the row as it was; by its position, as a later job may have the same id.
update jobs set seen = :touched where seq = :seq and seen < :touched

-- name: forget_deleted
-- The engine has forgotten a job that was deleted.
delete from deleted_jobs where seq = :seq

-- name: place_job
-- Every member has its place: the durable intent before anything is started.
update jobs set status = 'pending', message = '', placed = 1, attempt = :attempt, not_before = null, gated = 0,
                updated_at = :at, placed_at = :placed_at, seen = :touched
where seq = :seq and touched = :touched and status in $WAITING and placed = 0

-- name: insert_task
-- A member with its place; a restart takes the row again.
insert into tasks (job_id, role, idx, attempt, status, node, devices, ports, message)
values (:job_id, :role, :idx, :attempt, :status, :node, :devices, :ports, '')
on conflict (job_id, role, idx) do update set
    attempt = excluded.attempt, status = excluded.status, node = excluded.node, devices = excluded.devices,
    ports = excluded.ports, ready = 0, message = '', exit_code = null, started_at = null, finished_at = null,
    cpu_seconds = null, peak_memory = null, leaving = 0

-- name: update_job
-- The state that the machine gave; a stop that was asked for meanwhile stays visible, with the words of who asked. A
-- time to live that was changed meanwhile counts.
update jobs set status = case when status = 'terminating' and :status in ('pending', 'running', 'preempting') then status else :status end,
                message = case when status = 'terminating' and :status in ('pending', 'running', 'preempting') then message else :message end,
                outcome = :outcome, placed = :placed, not_before = :not_before,
                started_at = coalesce(:started_at, started_at), finished_at = :finished_at, updated_at = :at,
                delete_at = case when run_id is not null then null when ttl is null then :delete_at else :finished_at + ttl end
where id = :id

-- name: update_task
-- The state of one member that the machine gave.
update tasks set status = :status, ready = :ready, exit_code = :exit_code, message = :message, started_at = :started_at,
                 finished_at = :finished_at, cpu_seconds = :cpu_seconds, peak_memory = :peak_memory, leaving = :leaving
where job_id = :job_id and role = :role and idx = :idx and attempt = :attempt

-- name: note_eviction
-- A job was told to make way.
update jobs set preemptions = preemptions + 1, evicted_at = :at, evicted_by = :by, lost_seconds = lost_seconds + :lost
where id = :id

-- name: note_resize
-- Members of a job come or go, or it is started anew at another size.
update jobs set resizes = resizes + :anew, resized_at = :at, lost_seconds = lost_seconds + :lost where id = :id

-- name: note_size
-- What a job whose number of members may change holds now.
update jobs set cpu = :cpu, memory = :memory, scalars = :scalars where id = :id

-- name: insert_size
-- From when on it holds that.
insert into job_sizes (job_id, at, scalars) values (:id, :at, :scalars)
on conflict (job_id, at) do update set scalars = excluded.scalars

-- name: ended_since
-- Jobs that ended lately, the newest first, for what is learnt of durations.
select id, user_name, name, queue, member_sets, accepted_at, placed_at, started_at, finished_at, updated_at,
       members -> 0 -> 'document' ->> 'image' as image,
       substr(members -> 0 -> 'document' ->> 'command', 1, 200) as command
from jobs where updated_at > :since and finished_at is not null order by updated_at desc limit :limit

-- name: active_profiles
-- What jobs that have not ended have in common with others.
select id, user_name, name, queue, member_sets, accepted_at,
       members -> 0 -> 'document' ->> 'image' as image,
       substr(members -> 0 -> 'document' ->> 'command', 1, 200) as command
from jobs where status in $ACTIVE order by seq limit :limit

-- name: job_profile
-- The same of one job.
select id, user_name, name, queue, member_sets, accepted_at,
       members -> 0 -> 'document' ->> 'image' as image,
       substr(members -> 0 -> 'document' ->> 'command', 1, 200) as command
from jobs where id = :id

-- name: ended_since [postgres]
-- Jobs that ended lately, the newest first, for what is learnt of durations.
select id, user_name, name, queue, member_sets, accepted_at, placed_at, started_at, finished_at, updated_at,
       cast(members as json) -> 0 -> 'document' ->> 'image' as image,
       substr(cast(members as json) -> 0 -> 'document' ->> 'command', 1, 200) as command
from jobs where updated_at > :since and finished_at is not null order by updated_at desc limit :limit

-- name: active_profiles [postgres]
-- What jobs that have not ended have in common with others.
select id, user_name, name, queue, member_sets, accepted_at,
       cast(members as json) -> 0 -> 'document' ->> 'image' as image,
       substr(cast(members as json) -> 0 -> 'document' ->> 'command', 1, 200) as command
from jobs where status in $ACTIVE order by seq limit :limit

-- name: job_profile [postgres]
-- The same of one job.
select id, user_name, name, queue, member_sets, accepted_at,
       cast(members as json) -> 0 -> 'document' ->> 'image' as image,
       substr(cast(members as json) -> 0 -> 'document' ->> 'command', 1, 200) as command
from jobs where id = :id

-- name: evicted_jobs
-- Evictions that still count, after a restart of the engine.
select id, status, evicted_at, evicted_by from jobs
where cluster = :cluster and evicted_at > :since and status in $ACTIVE

-- name: end_unplaced_job
-- Stops a job that holds nothing yet; the engine forgets it when it sees the row.
update jobs set status = 'terminated', message = :message, finished_at = :at, updated_at = :at,
                delete_at = case when run_id is null then cast(:delete_at as double precision) else null end,
                touched = touched + 1
where id = :id and placed = 0 and status in $WAITING

-- name: waiting_in_queue
-- Some jobs of a user that wait in a queue and hold nothing.
select id from jobs
where user_name = :user_name and queue = :resource and placed = 0 and status in $WAITING
limit :limit

-- name: waiting_for_storage
-- Some jobs of a user that wait, hold nothing, and name a storage.
select jobs.id from job_storages
join jobs on jobs.id = job_storages.job_id
where job_storages.fs_id = :resource and jobs.user_name = :user_name and jobs.placed = 0 and jobs.status in $WAITING
limit :limit

-- name: ask_to_stop
-- Tells the engine to end a job that holds resources.
update jobs set status = 'terminating', message = :message, updated_at = :at, touched = touched + 1
where id = :id and placed = 1 and status in ('init', 'pending', 'running', 'preempting')

-- name: change_priority
-- A new priority for a job that has not started.
update jobs set priority = :priority, updated_at = :at, touched = touched + 1
where id = :id and status in $WAITING and placed = 0

-- name: change_notes
-- New labels and annotations, whole.
update jobs set labels = :labels, annotations = :annotations, updated_at = :at where id = :id

-- name: change_ttl
-- Another time to live; a job that has ended already is deleted accordingly.
update jobs set ttl = :ttl,
                delete_at = case when finished_at is null then null else cast(:delete_at as double precision) end
where id = :id

-- name: note_deleted
-- Tells the engine that a job is gone which it may still have in mind.
insert into deleted_jobs (seq, job_id, cluster) values (:seq, :id, :cluster)

-- name: delete_job
-- A job that has ended, for good.
delete from jobs where id = :id

-- name: delete_tasks
-- The members of a job that is deleted.
delete from tasks where job_id = :id

-- name: delete_sizes
-- What a job held that is deleted.
delete from job_sizes where job_id = :id

-- name: delete_labels
-- The labels of a job that is deleted.
delete from job_labels where job_id = :id

-- name: delete_storages
-- The storages of a job that is deleted.
delete from job_storages where job_id = :id

-- name: insert_dependency
-- A job waits for another one to end.
insert into job_dependencies (job_id, after_id, ending) values (:job_id, :after_id, :ending)

-- name: dependents
-- Who waits for these jobs.
select job_id, after_id, ending from job_dependencies
where after_id in (select value ->> 0 from json_each(:ids)) order by job_id

-- name: dependencies
-- What these jobs still wait for.
select job_id, after_id, ending from job_dependencies where job_id in (select value ->> 0 from json_each(:ids))
order by job_id, after_id

-- name: forget_ended
-- These jobs have ended: nobody waits for them any more.
delete from job_dependencies where after_id in (select value ->> 0 from json_each(:ids))

-- name: delete_dependencies
-- A job waits for nothing any more.
delete from job_dependencies where job_id = :id

-- name: release_jobs
-- Everything that these jobs waited for has ended as it must: the scheduler may see them.
update jobs set gated = 0, message = '', updated_at = :at, touched = touched + 1
where id in (select value ->> 0 from json_each(:ids)) and gated = 1 and placed = 0 and status in $WAITING

-- name: keep_waiting
-- A job waits for less than before.
update jobs set message = :message, updated_at = :at where id = :id and gated = 1 and placed = 0 and status in $WAITING

-- name: forget_waiting
-- These jobs wait for nothing any more.
delete from job_dependencies where job_id in (select value ->> 0 from json_each(:ids))

-- name: cancel_jobs
-- What these jobs waited for ended otherwise than it must; the engine forgets them when it sees the rows. Which of them still waited.
update jobs set status = 'cancelled', message = :message, finished_at = :at, updated_at = :at, gated = 0, touched = touched + 1,
                delete_at = case when ttl is null then cast(:delete_at as double precision) else :at + ttl end
where id in (select value ->> 0 from json_each(:ids)) and gated = 1 and placed = 0 and status in $WAITING
returning id

-- name: delete_secrets
-- What a job was given that is deleted.
delete from job_secrets where job_id = :id

-- name: group_runs
-- How many jobs of the steps of these runs are in each status, and when the first and last of them were what.
select user_name, run_id as id, status, count(*) as jobs,
       min(accepted_at) as accepted_at, min(started_at) as started_at, max(finished_at) as finished_at
from jobs
where run_id in (select value ->> 0 from json_each(:ids)) group by user_name, run_id, status

-- name: group_arrays
-- How many jobs of these arrays are in each status, and when the first and last of them were what.
select user_name, array_id as id, status, count(*) as jobs,
       min(accepted_at) as accepted_at, min(started_at) as started_at, max(finished_at) as finished_at
from jobs
where array_id in (select value ->> 0 from json_each(:ids)) group by user_name, array_id, status

-- name: jobs_of_run
-- The jobs that ran a run's steps, in the order in which they were made.
select * from jobs where run_id = :run_id order by seq

-- name: jobs_to_delete
-- Jobs of a cluster whose time has come.
select seq, id, cluster, touched, seen from jobs where delete_at is not null and delete_at <= :now and cluster = :cluster
order by delete_at limit :limit

-- name: count_by_status
-- How many jobs are in each active status, for the metrics.
select status, queue, count(*) as jobs from jobs
where status in $ACTIVE group by status, queue

-- name: held_by_user
-- What the jobs of every user in every queue hold now, summed per set of scalars, for the metrics.
select queue, user_name, scalars, count(*) as jobs, cast(sum(cpu) as bigint) as cpu, cast(sum(memory) as bigint) as memory
from jobs
where placed = 1 and status in $ACTIVE
group by queue, user_name, scalars

-- name: ended_behind
-- Jobs that reached a final status by an event behind a position, for the metrics.
select queue, user_name, status, accepted_at, started_at, finished_at, cpu, memory, scalars from jobs
where finished_at is not null
  and id in (select subject from events where seq > :after and kind = 'job' and type = 'status')

-- name: tasks_on_nodes
-- What every member on a cluster that holds resources takes, and where.
select t.node, t.job_id, t.role, t.idx, t.status, j.member_sets, j.labels
from tasks t join jobs j on j.id = t.job_id
where j.cluster = :cluster and j.placed = 1
  and j.status in $ACTIVE

-- name: card_time
-- Jobs of some queues that ran between two moments, for the card-time report.
select j.id, j.queue, j.user_name, j.member_sets, j.accepted_at, j.started_at, j.finished_at from jobs j
where j.queue = :queue and j.started_at is not null and j.started_at < :until
  and (j.finished_at is null or j.finished_at > :since)
order by j.seq

-- name: card_sizes
-- What those of the same jobs held over time whose members come and go.
select s.job_id, s.at, s.scalars from job_sizes s join jobs j on j.id = s.job_id
where j.queue = :queue and j.started_at is not null and j.started_at < :until
  and (j.finished_at is null or j.finished_at > :since)
order by s.at
