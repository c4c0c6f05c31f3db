"""Jobs as real processes on this machine.

Two sides. The server's: `local_runtime` (the protocol), `keeper_connection`, `logs`, `sampler`, `capacity`. The
keeper's, a small process of its own that is the parent of all attempts and outlives the server: `keeper` and all that
it imports; those modules import only light parts of the standard library, so that it starts in 40 ms and stays small.
``docs/internals/local-runtime.md`` has the journal and the crash table.
"""
