-- A queue whose jobs may go to several clusters.
alter table queues add column other_clusters text not null default '[]'; -- JSON list: clusters beside `cluster`, in order of preference
