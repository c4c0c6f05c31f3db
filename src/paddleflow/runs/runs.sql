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
