-- Jobs that were submitted together and are listed together.
alter table jobs add column array_id text;  -- of the array that the job belongs to, unique for its user; null: none
create index jobs_by_array on jobs (array_id, seq) where array_id is not null;
