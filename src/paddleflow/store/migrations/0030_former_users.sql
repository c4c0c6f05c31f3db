-- Users who were deleted: what is left of them is kept under another name, in rows at once and in folders by each server.
create table former_users (
    seq        $SEQUENCE,                  -- order of deletion; a folder remembers up to where it was followed
    name       text not null,              -- users.name at that time; somebody else may have it since
    former     text not null unique,       -- <name>~<users.seq>, which nobody can be called
    deleted_at double precision not null   -- when
);
