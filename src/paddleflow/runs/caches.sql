-- name: insert_cache
-- A result that later runs may use; its id is made of the position that this gives.
insert into run_caches (id, first_fp, second_fp, parts, run_id, source, pipeline, step, job_id, fs_id, fs_name, user_name,
                        expired_time, outputs, created_at, updated_at)
values (:id, :first_fp, :second_fp, :parts, :run_id, :source, :pipeline, :step, :job_id, :fs_id, :fs_name, :user_name,
        :expired_time, :outputs, :at, :at)
returning seq

-- name: name_cache
-- The id that belongs to a position.
update run_caches set id = :id where seq = :seq

-- name: caches_by_fp
-- Results with the same fingerprints, the newest first.
select seq, run_id, job_id, outputs, updated_at, expired_time from run_caches
where first_fp = :first_fp and user_name = :user_name and fs_id = :fs_id and second_fp = :second_fp
order by seq desc limit 5

-- name: last_cache_of_step
-- What the step gave the last time, to say what has changed since.
select parts, updated_at from run_caches where user_name = :user_name and pipeline = :pipeline and step = :step
order by seq desc limit 1

-- name: cache_by_id
-- One result, whoever owns it.
select * from run_caches where id = :id

-- name: delete_cache
-- A result that is not to be used any more.
delete from run_caches where id = :id
