-- A queue's location is a description, as existing clients mean it; which nodes take its jobs is a field of its own. A location
-- kept jobs on nodes until now, and goes on to do so for the queues that have one.
alter table queues add column node_selector text not null default '{}'; -- JSON object: labels that a node must carry to take its jobs
update queues set node_selector = location where location not like '%volcano.sh/quota-%';
