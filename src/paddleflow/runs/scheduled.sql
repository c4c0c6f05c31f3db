-- name: active_of_schedule
-- A user's runs of a schedule that have not ended, oldest first.
select id, status from runs
where schedule_id = :schedule_id and user_name = :user_name
  and status in ('initiating', 'pending', 'running', 'terminating')
order by seq
