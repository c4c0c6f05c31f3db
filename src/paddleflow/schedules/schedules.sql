-- name: schedule_by_seq
-- One schedule.
select * from schedules where seq = :seq

-- name: insert_schedule
-- Adds a schedule; gives no row when the user has one of that name.
insert into schedules (name, description, pipeline, version, user_name, crontab, timezone, catchup, expire_interval,
                       concurrency, policy, start_at, end_at, anchor_at, status, message, next_at, check_at, suspended,
                       created_at, updated_at)
values (:name, :description, :pipeline, :version, :user_name, :crontab, :timezone, :catchup, :expire_interval,
        :concurrency, :policy, :start_at, :end_at, :anchor_at, :status, :message, :next_at, :check_at, :suspended,
        :created_at, :updated_at)
on conflict (user_name, name) do nothing
returning seq

-- name: update_schedule
-- Writes everything of a schedule that may change.
update schedules
set status = :status, message = :message, next_at = :next_at, check_at = :check_at, suspended = :suspended,
    updated_at = :updated_at
where seq = :seq

-- name: delete_schedule
-- Takes a schedule away; its runs stay.
delete from schedules where seq = :seq

-- name: schedules_using
-- The running and paused schedules of a pipeline; `version` is empty for all of its versions.
select seq from schedules
where pipeline = :pipeline and (:version = '' or version = :version) and status in ('running', 'paused')
order by seq

-- name: due_schedules
-- Schedules that must be looked at now, behind a position.
select seq from schedules
where status = 'running' and seq > :after and (check_at <= :now or suspended = 1)
order by seq
limit :limit

-- name: next_check
-- When the next schedule must be looked at by itself.
select min(check_at) from schedules where status = 'running'
