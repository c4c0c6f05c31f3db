"""Clusters, queues, flavours and resource pools: what a job may run on, and how much of it.

`model` has the values, `rules` says what a document makes of them (pure), `clusters`, `queues`, `flavours` and `pools` are
transactions on their table, `tree` is the quota tree of queues (pure), `usage` counts what jobs take, and `defaults` makes the first start usable. Every change of a
cluster or queue bumps the counter ``queues`` in its transaction, so that the engine notices.
"""
