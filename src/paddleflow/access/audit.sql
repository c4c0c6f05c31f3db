-- name: append_audit
-- One entry more.
insert into audit (at, user_name, user_id, address, method, path, status, request_id)
values (:at, :user_name, :user_id, :address, :method, :path, :status, :request_id)

-- name: list_audit
-- A page of the log, newest first, of one user or of all.
select seq, at, user_name, user_id, address, method, path, status, request_id from audit
where seq < :before and (:user_name = '' or user_name = :user_name) order by seq desc limit :limit
