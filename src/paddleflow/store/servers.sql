-- name: announce_server
-- A server runs and can be reached here.
insert into servers (id, address, seen_at) values (:id, :address, :now)
on conflict (id) do update set address = excluded.address, seen_at = excluded.seen_at

-- name: withdraw_server
-- A server stops.
delete from servers where id = :id

-- name: lease_holder
-- Who holds a lease now, and where it can be reached; an empty address when it never said.
select l.holder, coalesce(s.address, '') as address from leases l left join servers s on s.id = l.holder
where l.name = :name and l.holder <> '' and l.expires_at > :now

-- name: cluster_of_job
-- The cluster of a job.
select cluster from jobs where id = :id

-- name: running_servers
-- Addresses of servers that announced themselves lately.
select address from servers where seen_at > :since and id <> :but order by address
