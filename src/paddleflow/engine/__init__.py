"""The loops that move rows forward.

One engine per cluster (`cluster_engine`) takes turns: read what changed, advance the machines, decide, write everything in one
transaction, then carry out what was decided. Its memory (`board`) can be thrown away at any line and is rebuilt from the
database and the runtime (`recovery`): a start, a restart after a crash and recovery from an error are one code path.
"""
