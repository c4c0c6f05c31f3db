"""PURE. Who starts where, and why the others wait: resources, quotas, cluster state, `decide`, reasons.

The server, the Kubernetes scheduler and the simulator call the same function. No I/O, no clock of its own, no asyncio.
"""
