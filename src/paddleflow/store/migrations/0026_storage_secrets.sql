-- Secrets of a storage (secret keys, passwords, key tables) stand apart from its other properties, encrypted.
alter table filesystems add column secrets text not null default '';  -- token of a JSON object (store/encryption.py), context storage:<id>; empty: none
