"""The database: SQLite or PostgreSQL behind one small interface; the only place where truth is kept.

A transaction is a plain synchronous function ``fn(tx, …)`` that runs on a database thread. Being synchronous
it cannot await, so no network call can slip into a transaction.
"""
