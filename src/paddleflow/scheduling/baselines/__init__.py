"""PURE. Plain policies that others use, to measure ours beside them on the same core: FIFO, fair share, oracle SRTF.

Each is a `Discipline`: it keeps the waiting jobs and tells a `Dispatcher` which to try next. The dispatcher (the simulator) tries them on
the real `Core`, so that placement, gangs and the ledger are the same for all.
"""
