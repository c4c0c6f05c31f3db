-- name: cache_settings
-- How mounts of a storage cache.
select * from fs_cache_settings where fs_id = :fs_id

-- name: insert_cache_settings
-- Says how mounts of a storage cache; touches nothing when that was said already.
insert into fs_cache_settings (fs_id, user_name, document, created_at, updated_at)
values (:fs_id, :user_name, :document, :now, :now)
on conflict (fs_id) do nothing

-- name: update_cache_settings
-- Says it anew.
update fs_cache_settings set document = :document, updated_at = :now where fs_id = :fs_id

-- name: delete_cache_settings
-- Back to the defaults.
delete from fs_cache_settings where fs_id = :fs_id
