-- Jobs carry their cluster: the engine of a cluster sees the rows of its own jobs and no others. A cluster of processes
-- belongs to the server of their machine.
alter table jobs add column cluster text not null default 'default-cluster';  -- clusters.name: that of its queue at submission
update jobs set cluster = coalesce((select q.cluster from queues q where q.name = jobs.queue), 'default-cluster');
alter table jobs add column gated integer not null default 0;                 -- 1: the scheduler does not see it until its run says so
update jobs set gated = 1, not_before = null where not_before = 1099511627776;
alter table deleted_jobs add column cluster text not null default 'default-cluster'; -- jobs.cluster of the row that is gone
drop index jobs_unseen;
create index jobs_unseen on jobs (cluster, seq) where touched > seen;
alter table clusters add column owner text not null default '';               -- id of the server whose machine it is; empty: any server may run it
