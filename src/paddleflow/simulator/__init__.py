"""Virtual time over the scheduling core: for tests, what-if, forecasts and the benchmarks against the literature.

Events drive the same `scheduling.core.Core` and quota ledger as the server does; executors say how long things take. No
policy lives here: policies are handed in from `scheduling`. Apart from `traces`, which reads files, the room is pure.
"""
