-- Clusters, queues, flavours and resource pools. Names are unique and are what other tables refer to; ids are for clients.
-- Amounts: cpu in thousandths of a core, memory in bytes, scalars as JSON {name: thousandths}.

create table clusters (
    seq          $SEQUENCE,                      -- position in lists; grows with creation
    id           text not null unique,           -- cluster-<8 hex>
    name         text not null unique,           -- see base/names.py: CLUSTER
    description  text not null,                  -- for people
    endpoint     text not null,                  -- address of its API; free text
    source       text not null,                  -- OnPremise, or who provides it
    cluster_type text not null,                  -- Local | Kubernetes | K3S; exactly one row is Local: default-cluster
    version      text not null,                  -- of Kubernetes; empty where it does not matter
    status       text not null,                  -- online | offline; an offline one takes and starts no jobs
    credential   text not null,                  -- kubeconfig in base64, empty when none; never leaves the server
    setting      text not null,                  -- JSON text of the administrator's, or empty
    namespaces   text not null,                  -- JSON list of the namespaces that its queues may have; []: all
    created_at   double precision not null,      -- when it was made
    updated_at   double precision not null       -- last change
);

-- Queues: where jobs wait, and how much they may take together.
create table queues (
    seq          $SEQUENCE,                      -- position in lists; grows with creation
    id           text not null unique,           -- queue-<8 hex>
    name         text not null unique,           -- see base/names.py: QUEUE; jobs.queue and grants.resource_id name it
    namespace    text not null,                  -- where its jobs live in the cluster
    cluster      text not null,                  -- clusters.name
    quota_type   text not null,                  -- elasticQuota | volcanoCapabilityQuota
    max_cpu      bigint not null,                -- ceiling of all its jobs together
    max_memory   bigint not null,                -- ceiling
    max_scalars  text not null,                  -- ceiling; a resource that is not named has the ceiling 0
    min_cpu      bigint not null,                -- guarantee; never above the ceiling
    min_memory   bigint not null,                -- guarantee
    min_scalars  text not null,                  -- guarantee
    location     text not null,                  -- JSON {label: value} that its nodes carry, and the two quota keys of queues/model.py
    policies     text not null,                  -- JSON list of names of spec/queue.py: POLICIES, in the order given
    parent       text not null default 'root',   -- queues.name of the same cluster that it stands under, or root: at the top
    weight       integer not null default 1,     -- its part, beside its siblings, of what is left over the guarantees; at least 1
    policy       text not null default 'fifo',   -- who goes first inside, among equal priorities: a word of scheduling/policy.py: POLICIES
    status       text not null,                  -- see queues/model.py: QueueStatus; only open ones take and start jobs
    follows      integer not null default 0,     -- 1: the ceiling is the machine's capacity and is set anew at each start; 0 once somebody set it
    created_at   double precision not null,      -- when it was made
    updated_at   double precision not null       -- last change
);
create index queues_by_cluster on queues (cluster);

-- Named sizes of one member of a job.
create table flavours (
    seq          $SEQUENCE,                      -- position in lists; grows with creation
    id           text not null unique,           -- flavour-<8 hex>
    name         text not null unique,           -- see base/names.py: FLAVOUR; jobs keep a copy of the amounts, not the name's meaning
    cluster      text not null,                  -- clusters.name for whose jobs alone it is meant, or empty: for all
    cpu          bigint not null,                -- of one member; above 0
    memory       bigint not null,                -- of one member; above 0
    scalars      text not null,                  -- of one member
    created_at   double precision not null,      -- when it was made
    updated_at   double precision not null       -- last change
);

-- Records of who may count on which part of a cluster.
create table resource_pools (
    seq          $SEQUENCE,                      -- position in lists; grows with creation
    id           text not null unique,           -- pool-<8 hex>
    name         text not null unique,           -- see base/names.py: POOL
    namespace    text not null,                  -- namespace that it stands for
    pool_type    text not null,                  -- free word of the administrator's
    provider     text not null,                  -- free word of the administrator's
    org_id       text not null,                  -- organisation it belongs to; free text
    creator      text not null,                  -- users.name who made it
    description  text not null,                  -- for people
    cluster      text not null,                  -- clusters.name
    quota_type   text not null,                  -- elasticQuota | volcanoCapabilityQuota
    total_cpu    bigint not null,                -- what it has
    total_memory bigint not null,                -- what it has
    total_scalars text not null,                 -- what it has
    min_cpu      bigint not null,                -- guarantee; never above what it has
    min_memory   bigint not null,                -- guarantee
    min_scalars  text not null,                  -- guarantee
    labels       text not null,                  -- JSON object; lists filter by it
    annotations  text not null,                  -- JSON object
    status       text not null,                  -- open | closed
    is_hybrid    integer not null,               -- 0 | 1; recorded as given
    created_at   double precision not null,      -- when it was made
    updated_at   double precision not null       -- last change
);
