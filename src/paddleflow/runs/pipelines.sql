-- name: pipeline_by_seq
-- One pipeline.
select * from pipelines where seq = :seq

-- name: insert_pipeline
-- Adds a pipeline that has its first version; gives no row when the user has one of that name.
insert into pipelines (name, description, user_name, versions, created_at, updated_at)
values (:name, :description, :user_name, 1, :at, :at)
on conflict (user_name, name) do nothing
returning seq

-- name: count_version
-- One more version was made; its number comes back.
update pipelines set versions = versions + 1, description = :description, updated_at = :at
where seq = :seq
returning versions

-- name: touch_pipeline
-- Something of a pipeline changed.
update pipelines set updated_at = :at where seq = :seq

-- name: delete_pipeline
-- Takes a pipeline away.
delete from pipelines where seq = :seq

-- name: insert_version
-- Adds a version.
insert into pipeline_versions (pipeline, number, fs_name, yaml_path, yaml, user_name, created_at)
values (:pipeline, :number, :fs_name, :yaml_path, :yaml, :user_name, :at)

-- name: version_by_number
-- One version.
select * from pipeline_versions where pipeline = :pipeline and number = :number

-- name: latest_version
-- The newest version that was not deleted.
select * from pipeline_versions where pipeline = :pipeline order by number desc limit 1

-- name: version_numbers
-- Which versions there are, oldest first.
select number from pipeline_versions where pipeline = :pipeline order by number

-- name: delete_version
-- Takes one version away.
delete from pipeline_versions where pipeline = :pipeline and number = :number

-- name: delete_versions
-- Takes all versions of a pipeline away.
delete from pipeline_versions where pipeline = :pipeline
