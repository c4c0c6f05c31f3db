-- The token of a mount that was made with a named token ends with it.
alter table tokens add column made_with text not null default '';         -- tokens.hash of the named token; empty: with a login, or by the server
