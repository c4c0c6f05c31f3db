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

-- name: insert_storage
-- Adds a storage; touches nothing when its owner has one of that name.
insert into filesystems (id, name, user_name, fs_type, server_address, sub_path, properties, independent, confined,
                         created_at, updated_at)
values (:id, :name, :user_name, :fs_type, :server_address, :sub_path, :properties, :independent, :confined,
        :created_at, :updated_at)
on conflict (id) do nothing

-- name: update_storage
-- Writes everything of a storage that may change.
update filesystems
set fs_type = :fs_type, server_address = :server_address, sub_path = :sub_path, properties = :properties,
    independent = :independent, confined = :confined, updated_at = :updated_at
where id = :id

-- name: delete_storage
-- Takes a storage away; its files stay.
delete from filesystems where id = :id

-- name: delete_storage_grants
-- Takes the grants of a storage away with it, so that a later one of the same name begins without any.
delete from grants where resource_type = 'fs' and resource_id = :id

-- name: count_active_jobs
-- How many jobs that have not ended use a storage.
select count(*) from job_storages
join jobs on jobs.id = job_storages.job_id
where job_storages.fs_id = :id and jobs.status in $ACTIVE

-- name: user_exists
-- Whether there is a user of this name.
select 1 from users where name = :name
