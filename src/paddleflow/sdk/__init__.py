"""The client library: what `paddleflow.connect()` and `paddleflow.Client` give, and what the command line stands on.

Standard library only, and each area is imported when it is first used: a command answers within 150 ms of its start.
Bottom to top: `transport` (HTTP, retries, errors) → `follow` (streams that survive a broken connection) → one module per
area → `client` → `legacy` (the calls of existing scripts).
"""
