-- The time at which the schedule engine checks a schedule again has the name that the code has.
alter table schedules rename column look_at to check_at;  -- when the engine must check again; null: when something happens
