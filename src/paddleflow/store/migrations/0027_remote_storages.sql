-- Storages of other types than local: their URLs, links to other stores, settings of their caches, mounts and what nodes hold.
alter table filesystems add column url text not null default '';  -- as it was given, without secrets; empty: local, whose folder is sub_path

-- Links: another store at a path inside a storage.
create table fs_links (
    seq            $SEQUENCE,                    -- position in lists
    id             text not null unique,         -- link-<8 hex digits>; binds its secrets
    fs_id          text not null,                -- filesystems.id of the storage that it is in
    fs_path        text not null,                -- where: a path without slashes at its ends
    user_name      text not null,                -- who made it
    fs_type        text not null,                -- type of the other store
    server_address text not null,                -- as in filesystems
    sub_path       text not null,                -- as in filesystems
    url            text not null,                -- of the other store
    properties     text not null,                -- JSON object; secrets are masked
    secrets        text not null,                -- token of a JSON object, context link:<id>; empty: none
    confined       integer not null,             -- as in filesystems, for a folder of this machine
    created_at     double precision not null,    -- when it was made
    unique (fs_id, fs_path)
);

-- How mounts of a storage cache.
create table fs_cache_settings (
    fs_id      text primary key,            -- filesystems.id
    user_name  text not null,               -- who made it
    document   text not null,               -- JSON object: spec/storage.py, CacheSettings
    created_at double precision not null,   -- when it was made
    updated_at double precision not null    -- last change
);

-- Mounts that report to the server; one that has not done so for a while is gone.
create table fs_mounts (
    id          text primary key,            -- mount-<8 hex digits>
    fs_id       text not null,               -- filesystems.id
    user_name   text not null,               -- who mounted
    node        text not null,               -- the machine's name
    folder      text not null,               -- where on that machine
    digest      text not null unique,        -- sha256 of the mount token
    created_at  double precision not null,   -- when it was mounted
    seen_at     double precision not null    -- when it last reported
);
create index fs_mounts_by_storage on fs_mounts (fs_id);

-- How much of a storage the caches of a node hold.
create table fs_node_caches (
    fs_id   text not null,               -- filesystems.id
    node    text not null,               -- name of the node
    bytes   bigint not null,             -- cached there
    seen_at double precision not null,   -- when that was reported
    primary key (fs_id, node)
);
