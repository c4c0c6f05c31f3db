"""Stand-ins for systems that the project talks to, for tests of this code and of code built on it.

    api_server      a Kubernetes API server inside this process; implements `kube.transport.Transport`
    registry        what it stores: objects, their versions, the history that watches read
    managed_fields  who owns which field: the sets behind server-side apply
    stores          stores around stores that fail on purpose, or count

Nothing in the product imports this package. Each stand-in passes the conformance suite of what it stands in for
(`tests/contract`).
"""
