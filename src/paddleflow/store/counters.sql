-- name: counter_value
-- How often something changed; no row stands for never.
select value from counters where name = :name

-- name: bump_counter
-- Something changed once more.
insert into counters (name, value) values (:name, 1)
on conflict (name) do update set value = counters.value + 1
