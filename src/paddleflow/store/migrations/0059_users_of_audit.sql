-- Who an entry of the audit log is about, also when a later user has the same name.
alter table audit add column user_id integer not null default 0;          -- users.seq; 0: nobody has that name, or an entry of an earlier version
