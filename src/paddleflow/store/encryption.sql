-- name: registered_keys
-- The keys that values of this database may be encrypted with.
select id, proof from encryption_keys order by created_at, id

-- name: register_key
-- From now on values may be encrypted with this key.
insert into encryption_keys (id, proof, created_at) values (:id, :proof, :now) on conflict (id) do nothing

-- name: forget_key
-- No value is encrypted with this key any more.
delete from encryption_keys where id = :id
