-- name: make_versions
-- The table that says which migrations were applied; the only one that is not made by a migration.
create table if not exists schema_versions (
    number integer primary key,
    name text not null,
    checksum text not null,
    applied_at double precision not null
)

-- name: versions
-- All applied migrations.
select number, name, checksum from schema_versions

-- name: add_version
-- Remember that a migration was applied.
insert into schema_versions (number, name, checksum, applied_at) values (:number, :name, :checksum, :applied_at)
