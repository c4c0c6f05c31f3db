-- name: pool_by_name
-- One resource pool.
select * from resource_pools where name = :name

-- name: list_pools
-- Resource pools from a position on; `name` is empty for all, `statuses` is ',a,b,' or empty for all.
select * from resource_pools
where seq > :after
  and (:name = '' or name = :name)
  and (:statuses = '' or replace(:statuses, ',' || status || ',', '') <> :statuses)
order by seq

-- name: insert_pool
-- Adds a resource pool; touches nothing when the name is taken.
insert into resource_pools (id, name, namespace, pool_type, provider, org_id, creator, description, cluster, quota_type,
                            total_cpu, total_memory, total_scalars, min_cpu, min_memory, min_scalars, labels,
                            annotations, status, is_hybrid, created_at, updated_at)
values (:id, :name, :namespace, :pool_type, :provider, :org_id, :creator, :description, :cluster, :quota_type,
        :total_cpu, :total_memory, :total_scalars, :min_cpu, :min_memory, :min_scalars, :labels,
        :annotations, :status, :is_hybrid, :created_at, :updated_at)
on conflict (name) do nothing

-- name: update_pool
-- Writes everything of a resource pool that may change.
update resource_pools
set total_cpu = :total_cpu, total_memory = :total_memory, total_scalars = :total_scalars,
    annotations = :annotations, status = :status, updated_at = :updated_at
where name = :name

-- name: delete_pool
-- Takes a resource pool away.
delete from resource_pools where name = :name
