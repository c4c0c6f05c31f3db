-- name: active_of_schedule
-- The runs of a schedule that have not ended, oldest first.
select id, status from runs
where schedule_id = :schedule_id and status in ('initiating', 'pending', 'running', 'terminating')
order by seq

-- name: make_room
-- Tells the engine to end a run of a schedule politely, for a newer one.
update runs set stop = 1, status = 'terminating', message = :message, updated_at = :at, touched = touched + 1
where id = :id and status in ('initiating', 'pending', 'running') and stop < 1
