-- name: counter_value
-- How often something changed; no row stands for never.
select value from counters where name = :name

-- name: counter_sum
-- The numbers of two things in one query.
select coalesce(sum(value), 0) as value from counters where name in (:name, :other)

-- name: bump_counter
-- Something changed once more.
insert into counters (name, value) values (:name, :step)
on conflict (name) do update set value = counters.value + excluded.value
