-- name: put_secret
-- A new secret, or another value of one that is there.
insert into secrets (id, user_name, name, value, created_at, updated_at)
values (:id, :user_name, :name, :value, :now, :now)
on conflict (user_name, name) do update set value = excluded.value, updated_at = excluded.updated_at

-- name: secret_id
-- The id of a secret of this name.
select id from secrets where user_name = :user_name and name = :name

-- name: secrets_of
-- The secrets of a user, without their values.
select id, name, created_at, updated_at from secrets where user_name = :user_name order by name

-- name: count_secrets
-- How many secrets a user has.
select count(*) from secrets where user_name = :user_name

-- name: remove_secret
-- A secret is deleted.
delete from secrets where user_name = :user_name and name = :name

-- name: remove_secrets_of
-- All secrets of a user who is deleted.
delete from secrets where user_name = :user_name

-- name: secrets_for_job
-- What a job is given: the secrets of its user.
select s.id, s.name, s.value from secrets s join jobs j on j.user_name = s.user_name where j.id = :job_id

-- name: note_given
-- A job was given this value; touches no row when that is known.
insert into job_secrets (id, job_id, value)
select :id, :job_id, :value where not exists (select 1 from job_secrets where job_id = :job_id and value = :value)

-- name: given_to
-- The values that a job was given.
select id, value from job_secrets where job_id = :job_id

-- name: page_of_secrets
-- A page of all encrypted values, by id.
select id, value as token from secrets where id > :after order by id limit :limit

-- name: replace_secret
-- The same value, encrypted with another key.
update secrets set value = :token where id = :id and value = :old

-- name: page_of_given
-- A page of all values that jobs were given, by id.
select id, value as token from job_secrets where id > :after order by id limit :limit

-- name: replace_given
-- The same value, encrypted with another key.
update job_secrets set value = :token where id = :id and value = :old
