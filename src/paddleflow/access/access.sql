-- name: user_by_name
-- One user with the password's hash.
select seq, name, password_hash, created_at, updated_at from users where name = :name

-- name: users_after
-- A page of users but root, in order of creation.
select seq, name, created_at from users where seq > :after and name <> 'root' order by seq limit :limit

-- name: add_user
-- A new user; touches no row when the name is taken.
insert into users (name, password_hash, created_at, updated_at)
values (:name, :password_hash, :now, :now)
on conflict (name) do nothing

-- name: set_password
-- Another password for a user.
update users set password_hash = :password_hash, updated_at = :now where name = :name

-- name: remove_user
-- The user's own row.
delete from users where name = :name

-- name: active_jobs_of
-- Jobs that have not ended, of a user or on a storage of the user's: while there are any, the user stays. A later user of the same name
-- may have a storage of the same name, which they would find in its place.
select count(*) from jobs
where status in $ACTIVE and (user_name = :name or id in (
    select job_storages.job_id from job_storages
    join filesystems on filesystems.id = job_storages.fs_id
    where filesystems.user_name = :name))

-- name: active_runs_of
-- Runs that have not ended, of a user or with a storage of the user's as their main one.
select count(*) from runs
where status in ('initiating', 'pending', 'running', 'terminating') and (user_name = :name or fs_id in (
    select id from filesystems where user_name = :name))

-- name: active_schedules_of
-- Schedules of a user that may start a run.
select count(*) from schedules where user_name = :name and status = 'running'

-- name: reassign_jobs
-- The jobs of a deleted user, under the name that nobody can have.
update jobs set user_name = :former where user_name = :name

-- name: reassign_runs
-- Likewise the runs.
update runs set user_name = :former where user_name = :name

-- name: reassign_artifacts
-- Likewise the records of artifacts.
update artifacts set user_name = :former where user_name = :name

-- name: reassign_caches
-- Likewise the cached results of steps.
update run_caches set user_name = :former where user_name = :name

-- name: reassign_pipelines
-- Likewise the registered pipelines.
update pipelines set user_name = :former where user_name = :name

-- name: reassign_versions
-- Likewise the versions of pipelines.
update pipeline_versions set user_name = :former where user_name = :name

-- name: reassign_schedules
-- Likewise the schedules, none of which is active.
update schedules set user_name = :former where user_name = :name

-- name: reassign_links
-- Likewise links that the user made in storages of others.
update fs_links set user_name = :former where user_name = :name

-- name: reassign_cache_settings
-- Likewise settings of caches of storages of others.
update fs_cache_settings set user_name = :former where user_name = :name

-- name: note_former_user
-- A user is deleted: servers move what is left in folders aside.
insert into former_users (name, former, deleted_at) values (:name, :former, :now)

-- name: former_users_after
-- Who was deleted behind a position, in that order.
select seq, name, former from former_users where seq > :after order by seq

-- name: add_token
-- A token that was just given.
insert into tokens (hash, user_name, name, scope, made_with, created_at, expires_at)
values (:hash, :user_name, :name, :scope, :made_with, :now, :expires_at)

-- name: token_by_hash
-- A token, while its user exists, and the one that it was made with, if any. It counts no longer than that one.
select t.user_name, t.name, t.scope, t.created_at, u.seq as user_id,
    case when m.expires_at < t.expires_at then m.expires_at else t.expires_at end as expires_at
from tokens t join users u on u.name = t.user_name left join tokens m on m.hash = t.made_with
where t.hash = :hash and (t.made_with = '' or m.hash is not null)

-- name: tokens_of
-- The tokens of a user that have a name and have not run out, oldest first.
select user_name, name, scope, created_at, expires_at from tokens
where user_name = :user_name and name <> '' and expires_at > :now order by created_at, name

-- name: remove_named_token
-- A token of a user ends.
delete from tokens where user_name = :user_name and name = :name and name <> ''

-- name: remove_token
-- Logout: one token ends.
delete from tokens where hash = :hash

-- name: extend_token
-- A token counts for longer.
update tokens set expires_at = :expires_at where hash = :hash

-- name: remove_tokens_of
-- Every token of a user ends: the password was changed, or the user is deleted.
delete from tokens where user_name = :user_name

-- name: remove_expired_tokens
-- Housekeeping at a login: tokens that do not count any more.
delete from tokens where expires_at <= :now

-- name: failures_of_name
-- How many logins of a name failed from one address since a moment, and the last of them.
select count(*) as failures, max(failed_at) as last_at from login_failures
where user_name = :user_name and address = :address and failed_at > :since

-- name: failures_of_address
-- How many logins of any name failed from one address since a moment, and the last of them.
select count(*) as failures, max(failed_at) as last_at from login_failures where address = :address and failed_at > :since

-- name: add_failure
-- A login failed.
insert into login_failures (user_name, address, failed_at) values (:user_name, :address, :now)

-- name: remove_failures_of
-- A login succeeded, or root set another password: earlier failures of that name count no more.
delete from login_failures where user_name = :user_name

-- name: remove_old_failures
-- Housekeeping at a failed login: failures older than the window.
delete from login_failures where failed_at <= :since

-- name: add_grant
-- A new grant; touches no row when the user has it already.
insert into grants (id, user_name, resource_type, resource_id, created_at)
values (:id, :user_name, :resource_type, :resource_id, :now)
on conflict (user_name, resource_type, resource_id) do nothing

-- name: grants_after
-- A page of all grants, in order of creation.
select seq, id, user_name, resource_type, resource_id, created_at from grants
where seq > :after order by seq limit :limit

-- name: grants_of_after
-- A page of one user's grants, in order of creation.
select seq, id, user_name, resource_type, resource_id, created_at from grants
where user_name = :user_name and seq > :after order by seq limit :limit

-- name: has_grant
-- Whether a user was granted a resource.
select count(*) from grants
where user_name = :user_name and resource_type = :resource_type and resource_id = :resource_id

-- name: remove_grant
-- Take a grant back.
delete from grants
where user_name = :user_name and resource_type = :resource_type and resource_id = :resource_id

-- name: remove_grants_of
-- Every grant that a user has: the user is deleted.
delete from grants where user_name = :user_name

-- name: remove_grants_on_user
-- Every grant on a user who is deleted.
delete from grants where resource_type = 'user' and resource_id = :user_name

-- name: remove_links_of
-- The links in storages of a user who is deleted.
delete from fs_links where fs_id in (select id from filesystems where user_name = :user_name)

-- name: remove_cache_settings_of
-- The settings of caches of these storages.
delete from fs_cache_settings where fs_id in (select id from filesystems where user_name = :user_name)

-- name: remove_mounts_of
-- The mounts of these storages, and those that the user made of others.
delete from fs_mounts
where user_name = :user_name or fs_id in (select id from filesystems where user_name = :user_name)

-- name: remove_node_caches_of
-- What nodes hold of these storages.
delete from fs_node_caches where fs_id in (select id from filesystems where user_name = :user_name)

-- name: remove_grants_on_storages_of
-- Every grant on a storage of a user who is deleted.
delete from grants
where resource_type = 'fs' and resource_id in (select id from filesystems where user_name = :user_name)

-- name: remove_storages_of
-- The records of the storages of a user who is deleted.
delete from filesystems where user_name = :user_name

-- name: queue_exists
-- Whether there is a queue of this name.
select 1 from queues where name = :id

-- name: user_exists
-- Whether there is a user of this name.
select 1 from users where name = :id

-- name: fs_exists
-- Whether there is a storage of this id.
select 1 from filesystems where id = :id
