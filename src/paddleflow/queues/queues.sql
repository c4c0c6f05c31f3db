-- name: queue_by_name
-- One queue.
select * from queues where name = :name

-- name: queues_of_cluster
-- All queues of a cluster, for the scheduler; `pattern` finds its name among the other clusters of a queue.
select * from queues where cluster = :cluster or other_clusters like :pattern order by seq

-- name: list_queues
-- A page of the queues that a user may use; `user` is empty for all, `names` is ',a,b,' or empty for all.
select * from queues
where seq > :after
  and (:names = '' or replace(:names, ',' || name || ',', '') <> :names)
  and (:user_name = '' or name = :for_all or exists (
        select 1 from grants
        where user_name = :user_name and resource_type = 'queue' and resource_id = queues.name))
order by seq
limit :limit

-- name: queue_granted
-- Whether a user has a grant for a queue.
select 1 from grants where user_name = :user_name and resource_type = 'queue' and resource_id = :queue

-- name: insert_queue
-- Adds a queue; touches nothing when the name is taken.
insert into queues (id, name, namespace, cluster, quota_type, max_cpu, max_memory, max_scalars, min_cpu, min_memory,
                    min_scalars, location, node_selector, policies, parent, weight, job_order, other_clusters, status, follows,
                    created_at, updated_at)
values (:id, :name, :namespace, :cluster, :quota_type, :max_cpu, :max_memory, :max_scalars, :min_cpu, :min_memory,
        :min_scalars, :location, :node_selector, :policies, :parent, :weight, :job_order, :other_clusters, :status, :follows,
        :created_at, :updated_at)
on conflict (name) do nothing

-- name: update_queue
-- Writes everything of a queue that may change.
update queues
set max_cpu = :max_cpu, max_memory = :max_memory, max_scalars = :max_scalars, min_cpu = :min_cpu,
    min_memory = :min_memory, min_scalars = :min_scalars, location = :location, node_selector = :node_selector, policies = :policies,
    parent = :parent, weight = :weight, job_order = :job_order, other_clusters = :other_clusters,
    status = :status, follows = :follows, updated_at = :updated_at
where name = :name

-- name: delete_queue
-- Takes a queue away.
delete from queues where name = :name

-- name: delete_queue_grants
-- Takes the grants of a queue away with it, so that a later queue of the same name begins without any.
delete from grants where resource_type = 'queue' and resource_id = :name

-- name: count_active_jobs
-- How many jobs of a queue have not ended.
select count(*) from jobs
where queue = :queue and status in $ACTIVE

-- name: count_active_jobs_on
-- The same on one cluster.
select count(*) from jobs
where queue = :queue and cluster = :cluster and status in $ACTIVE

-- name: queues_below
-- The queues that stand directly under one.
select name from queues where parent = :name order by seq

-- name: used_by_queue
-- What the jobs of every queue hold now, summed per queue and set of scalars, as used_by_jobs.
select queue, scalars, count(*) as jobs, cast(sum(cpu) as bigint) as cpu, cast(sum(memory) as bigint) as memory
from jobs
where status in $ACTIVE
  and (status in ('running', 'terminating', 'preempting') or (status = 'pending' and placed = 1))
group by queue, scalars
