-- name: acquire
-- Take a lease that is new, has ended, or is one's own; the token grows each time. No row: another holds it.
insert into leases (name, holder, token, expires_at)
values (:name, :holder, 1, :expires_at)
on conflict (name) do update
set holder = excluded.holder, token = leases.token + 1, expires_at = excluded.expires_at
where leases.expires_at <= :now or leases.holder = excluded.holder
returning token

-- name: renew
-- Hold a lease for longer; also one that has ended, as long as nobody took it since.
update leases set expires_at = :expires_at where name = :name and token = :token and holder <> ''

-- name: held
-- One row while the token is the newest one and was not given back.
select 1 as held from leases where name = :name and token = :token and holder <> ''

-- name: release
-- Give a lease back; the token stays, so that it goes on growing.
update leases set holder = '', expires_at = 0 where name = :name and token = :token
