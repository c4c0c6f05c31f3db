-- Storages (file systems): where a user's files are. The row is a pointer; deleting it never touches the files.

create table filesystems (
    seq            $SEQUENCE,                    -- position in lists, which show the newest first
    id             text not null unique,         -- fs-<user>-<name>; job_storages.fs_id and grants.resource_id name it
    name           text not null,                -- see base/names.py: STORAGE; unique per user
    user_name      text not null,                -- owner: users.name
    fs_type        text not null,                -- local; further types come with the file system itself
    server_address text not null,                -- host of a remote store; empty for local
    sub_path       text not null,                -- path within it; for local the absolute, normalised folder as it was named
    properties     text not null,                -- JSON object of options; empty for local
    independent    integer not null,             -- 1: mounted by a process of its own; recorded as given
    confined       integer not null,             -- 1: named by its owner, so the folder must lie in the owner's area; 0: named by root, anywhere
    created_at     double precision not null,    -- when it was made
    updated_at     double precision not null     -- last change
);
create index filesystems_by_user on filesystems (user_name, seq);
