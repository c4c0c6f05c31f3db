-- Which keys values of this database may be encrypted with. The keys themselves are never in the database.
create table encryption_keys (
    id         text primary key,           -- of the key, as it stands in the key file and in each encrypted value
    proof      text not null,              -- HMAC of a fixed text by the key: tells whether a server holds the same one
    created_at double precision not null   -- when it was first used here
);
