-- name: insert_artifact
-- Something that a step read or made.
insert into artifacts (run_id, fs_id, fs_name, user_name, path, step, job_id, kind, name, hash, size, meta, created_at,
                       updated_at)
values (:run_id, :fs_id, :fs_name, :user_name, :path, :step, :job_id, :kind, :name, :hash, :size, :meta, :at, :at)

-- name: artifact_makers
-- Who made or reused what lies at a path, the first one first.
select * from artifacts where fs_id = :fs_id and path = :path and kind = 'output' order by seq

-- name: artifacts_of_step
-- What one step of a run read and made.
select * from artifacts where run_id = :run_id and step = :step order by seq

-- name: delete_artifact
-- The records of a path in a run.
delete from artifacts where fs_id = :fs_id and run_id = :run_id and path = :path

-- name: artifacts_of_run
-- What all steps of a run read and made.
select * from artifacts where run_id = :run_id order by seq

-- name: artifact_known
-- Whether some run knows of a path.
select 1 from artifacts where fs_id = :fs_id and path = :path limit 1
