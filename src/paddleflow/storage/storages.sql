-- name: storage_by_id
-- One storage.
select * from filesystems where id = :id

-- name: granted
-- The storages of a name, or of an id, that were granted to a user.
select filesystems.* from filesystems
join grants on grants.resource_type = 'fs' and grants.resource_id = filesystems.id
where grants.user_name = :user_name and (filesystems.name = :name or filesystems.id = :name)
order by filesystems.seq

-- name: list_storages
-- A page of storages, newest first; `user_name` sees its own and what was granted to it, everything when empty; `owner` and `name` are empty for all.
select * from filesystems
where (:before = 0 or seq < :before)
  and (:name = '' or name = :name)
  and (:owner = '' or user_name = :owner)
  and (:user_name = '' or user_name = :user_name or exists (
        select 1 from grants
        where grants.user_name = :user_name and resource_type = 'fs' and resource_id = filesystems.id))
order by seq desc
limit :limit

-- name: local_folders
-- Folders of this machine that are storages of anybody.
select distinct sub_path from filesystems where fs_type = 'local' order by sub_path limit :limit

-- name: insert_storage
-- Adds a storage; touches nothing when its owner has one of that name.
insert into filesystems (id, name, user_name, fs_type, server_address, sub_path, url, properties, secrets, independent,
                         confined, created_at, updated_at)
values (:id, :name, :user_name, :fs_type, :server_address, :sub_path, :url, :properties, :secrets, :independent,
        :confined, :created_at, :updated_at)
on conflict (id) do nothing

-- name: update_storage
-- Writes everything of a storage that may change.
update filesystems
set fs_type = :fs_type, server_address = :server_address, sub_path = :sub_path, url = :url, properties = :properties,
    secrets = :secrets, independent = :independent, confined = :confined, updated_at = :updated_at
where id = :id

-- name: delete_storage
-- Takes a storage away; its files stay.
delete from filesystems where id = :id

-- name: delete_storage_grants
-- Takes the grants of a storage away with it, so that a later one of the same name begins without any.
delete from grants where resource_type = 'fs' and resource_id = :id

-- name: delete_storage_cache
-- Takes the settings of a storage's cache away with it.
delete from fs_cache_settings where fs_id = :id

-- name: delete_storage_mounts
-- Takes mounts away that no longer report.
delete from fs_mounts where fs_id = :id

-- name: delete_storage_nodes
-- What nodes hold of a storage that is gone is nobody's.
delete from fs_node_caches where fs_id = :id

-- name: active_jobs
-- Some jobs that have not ended and use a storage.
select jobs.id as name from job_storages
join jobs on jobs.id = job_storages.job_id
where job_storages.fs_id = :id and jobs.status in $ACTIVE
limit :limit

-- name: active_runs
-- Some runs that have not ended and have a storage as their main one.
select id as name from runs
where fs_id = :id and status in ('initiating', 'pending', 'running', 'terminating')
order by seq limit :limit

-- name: active_schedules
-- Some schedules that may still fire and whose pipeline was read from a storage, which its owner or somebody with a grant named.
select schedules.name as name from schedules
join pipelines on schedules.pipeline =
    'ppl-' || case when pipelines.seq < 1000000 then substr(cast(1000000 + pipelines.seq as text), 2)
                   else cast(pipelines.seq as text) end
join pipeline_versions on pipeline_versions.pipeline = pipelines.seq
    and cast(pipeline_versions.number as text) = schedules.version
where schedules.status in ('running', 'paused') and pipeline_versions.fs_name = :name
  and (pipeline_versions.user_name = :owner or exists (
        select 1 from grants
        where grants.user_name = pipeline_versions.user_name and resource_type = 'fs' and resource_id = :id))
order by schedules.seq limit :limit

-- name: live_mounts
-- Some mounts of a storage that reported lately.
select node || ':' || folder as name from fs_mounts
where fs_id = :id and seen_at > :since order by created_at limit :limit

-- name: link_paths
-- Some paths of a storage that have links.
select fs_path as name from fs_links where fs_id = :id order by fs_path limit :limit

-- name: user_exists
-- Whether there is a user of this name.
select 1 from users where name = :name

-- name: encrypted_page
-- Storages that hold secrets, in order of id.
select id, secrets as token from filesystems where secrets <> '' and id > :after order by id limit :limit

-- name: replace_encrypted
-- Gives the secrets of a storage another key, unless they changed meanwhile.
update filesystems set secrets = :token where id = :id and secrets = :old
