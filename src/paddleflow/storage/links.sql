-- name: links_of
-- All links of a storage.
select * from fs_links where fs_id = :fs_id order by fs_path

-- name: list_links
-- A page of the links of a storage, newest first; `fs_path` is empty for all.
select * from fs_links
where fs_id = :fs_id and (:before = 0 or seq < :before) and (:fs_path = '' or fs_path = :fs_path)
order by seq desc limit :limit

-- name: insert_link
-- Adds a link; touches nothing when there is one at its path.
insert into fs_links (id, fs_id, fs_path, user_name, fs_type, server_address, sub_path, url, properties, secrets,
                      confined, created_at)
values (:id, :fs_id, :fs_path, :user_name, :fs_type, :server_address, :sub_path, :url, :properties, :secrets,
        :confined, :created_at)
on conflict (fs_id, fs_path) do nothing

-- name: delete_link
-- Takes a link away; the files of the other store stay.
delete from fs_links where fs_id = :fs_id and fs_path = :fs_path

-- name: encrypted_page
-- Links that hold secrets, in order of id.
select id, secrets as token from fs_links where secrets <> '' and id > :after order by id limit :limit

-- name: replace_encrypted
-- Gives the secrets of a link another key, unless they changed meanwhile.
update fs_links set secrets = :token where id = :id and secrets = :old
