-- name: cluster_by_name
-- One cluster.
select * from clusters where name = :name

-- name: encrypted_page
-- Clusters that hold an encrypted credential, in order of name.
select name as id, credential as token from clusters where credential like 'v1.%' and name > :after order by name limit :limit

-- name: replace_encrypted
-- Gives the credential of a cluster another key, or its first one, unless it changed meanwhile.
update clusters set credential = :token where name = :id and credential = :old

-- name: plain_credentials
-- Clusters whose credential was kept before credentials were encrypted.
select name, credential from clusters where credential <> '' and credential not like 'v1.%'

-- name: cluster_names
-- The names of all clusters, for hints and for lists without a filter.
select name from clusters order by seq

-- name: list_clusters
-- A page of clusters; `names` is ',a,b,' or empty for all, `status` is empty for all.
select * from clusters
where seq > :after
  and (:names = '' or replace(:names, ',' || name || ',', '') <> :names)
  and (:status = '' or status = :status)
order by seq
limit :limit

-- name: insert_cluster
-- Adds a cluster; touches nothing when the name is taken.
insert into clusters (id, name, description, endpoint, source, cluster_type, version, status, credential, setting,
                      namespaces, created_at, updated_at)
values (:id, :name, :description, :endpoint, :source, :cluster_type, :version, :status, :credential, :setting,
        :namespaces, :created_at, :updated_at)
on conflict (name) do nothing

-- name: update_cluster
-- Writes everything of a cluster that may change.
update clusters
set description = :description, endpoint = :endpoint, source = :source, cluster_type = :cluster_type,
    version = :version, status = :status, credential = :credential, setting = :setting, namespaces = :namespaces,
    updated_at = :updated_at
where name = :name

-- name: delete_cluster
-- Takes a cluster away.
delete from clusters where name = :name

-- name: count_dependents
-- How many queues, flavours and pools name a cluster.
select (select count(*) from queues where cluster = :name or other_clusters like :pattern) as queues,
       (select count(*) from flavours where cluster = :name) as flavours,
       (select count(*) from resource_pools where cluster = :name) as pools

-- name: every_cluster
-- All clusters, for those who run them.
select * from clusters order by seq

-- name: claim_cluster
-- Notes whose machine a cluster is.
update clusters set owner = :owner where name = :name and owner <> :owner
