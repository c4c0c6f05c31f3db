-- name: report_cache
-- How much of a storage the caches of a node hold now; of a storage that is gone nothing is kept.
insert into fs_node_caches (fs_id, node, bytes, seen_at)
select :fs_id, :node, :bytes, :now where exists (select 1 from filesystems where id = :fs_id)
on conflict (fs_id, node) do update set bytes = excluded.bytes, seen_at = excluded.seen_at

-- name: forget_cache
-- The caches of a node hold nothing of a storage any more.
delete from fs_node_caches where fs_id = :fs_id and node = :node

-- name: caches_of
-- Which nodes hold how much of a storage, most first.
select node, bytes, seen_at from fs_node_caches where fs_id = :fs_id and bytes > 0 order by bytes desc, node limit :limit

-- name: all_caches
-- What nodes hold of all storages, the newest reports first.
select fs_id, node, bytes, seen_at from fs_node_caches where bytes > 0 order by seen_at desc limit :limit

-- name: storages_of_jobs
-- Which storages jobs use of which some node holds something.
select job_id, fs_id from job_storages
where job_id in (select value ->> 0 from json_each(:ids)) and fs_id in (select fs_id from fs_node_caches where bytes > 0)

-- name: storages_of_waiting
-- The same of all jobs of a cluster that wait.
select job_id, fs_id from job_storages join jobs on jobs.id = job_storages.job_id
where jobs.cluster = :cluster and jobs.placed = 0 and jobs.status in $WAITING
  and fs_id in (select fs_id from fs_node_caches where bytes > 0)

-- name: held_for_job
-- How much each node holds of the storages that a job uses, most first.
select node, sum(bytes) as bytes from fs_node_caches
where bytes > 0 and fs_id in (select fs_id from job_storages where job_id = :job_id)
group by node order by bytes desc, node limit :limit

-- name: is_used
-- Whether a job that has not ended uses a storage.
select 1 from job_storages join jobs on jobs.id = job_storages.job_id
where job_storages.fs_id = :fs_id and jobs.status in $ACTIVE
limit 1
