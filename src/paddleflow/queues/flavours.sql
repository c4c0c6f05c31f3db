-- name: flavour_by_name
-- One flavour.
select * from flavours where name = :name

-- name: flavour_names
-- The names of all flavours, for hints.
select name from flavours order by seq

-- name: list_flavours
-- A page of flavours; `part` must be in the name, `cluster` empty shows all, otherwise its own and those of no cluster.
select * from flavours
where seq > :after
  and (:part = '' or replace(name, :part, '') <> name)
  and (:cluster = '' or cluster = :cluster or cluster = '')
order by seq
limit :limit

-- name: insert_flavour
-- Adds a flavour; touches nothing when the name is taken.
insert into flavours (id, name, cluster, cpu, memory, scalars, created_at, updated_at)
values (:id, :name, :cluster, :cpu, :memory, :scalars, :created_at, :updated_at)
on conflict (name) do nothing

-- name: update_flavour
-- Writes everything of a flavour that may change.
update flavours
set cluster = :cluster, cpu = :cpu, memory = :memory, scalars = :scalars, updated_at = :updated_at
where name = :name

-- name: delete_flavour
-- Takes a flavour away; jobs keep a copy of its amounts.
delete from flavours where name = :name
