-- name: append
-- One more event at the end of the log.
insert into events (kind, subject, at, type, data) values (:kind, :subject, :at, :type, :data)

-- name: append_alike
-- The same event of many things.
insert into events (kind, subject, at, type, data)
select :kind, value ->> 0, :at, :type, :data from json_each(:subjects)

-- name: after_subject
-- The events of one thing after a position.
select seq, kind, subject, at, type, data
from events
where kind = :kind and subject = :subject and seq > :seq
order by seq
limit :limit

-- name: after_kind
-- The events of all things of a kind after a position.
select seq, kind, subject, at, type, data
from events
where kind = :kind and seq > :seq
order by seq
limit :limit

-- name: last_seq
-- The newest position, 0 in an empty log.
select coalesce(max(seq), 0) as seq from events

-- name: delete_for
-- Forget the history of one thing, when the thing itself goes.
delete from events where kind = :kind and subject = :subject
