-- name: add_mount
-- Notes a mount of a storage.
insert into fs_mounts (id, fs_id, user_name, node, folder, digest, created_at, seen_at)
values (:id, :fs_id, :user_name, :node, :folder, :digest, :now, :now)

-- name: mount_by_id
-- One mount of a storage.
select * from fs_mounts where id = :id and fs_id = :fs_id

-- name: mounts_of
-- The mounts of a storage that reported lately, oldest first.
select * from fs_mounts where fs_id = :fs_id and seen_at > :since order by created_at, id limit :limit

-- name: see_mount
-- A mount has reported.
update fs_mounts set seen_at = :now where id = :id

-- name: remove_mount
-- A mount has ended.
delete from fs_mounts where id = :id

-- name: remove_lost_mounts
-- Mounts that have not reported for so long that their tokens have run out.
delete from fs_mounts where seen_at < :before

-- name: count_mounts
-- How many mounts a user has; also those that do not report any more, as long as their tokens count.
select count(*) from fs_mounts where user_name = :user_name

-- name: end_lost_tokens
-- The tokens of a user's mounts that do not report any more.
delete from tokens where hash in (select digest from fs_mounts where user_name = :user_name and seen_at <= :since)

-- name: remove_lost_mounts_of
-- A user's mounts that do not report any more.
delete from fs_mounts where user_name = :user_name and seen_at <= :since
