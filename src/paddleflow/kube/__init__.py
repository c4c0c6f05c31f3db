"""Kubernetes: the base of the operator, the cluster runtime, the pod scheduler and the CSI driver.

    resources    the kinds, their paths, and the parts of an object that everybody reads
    config       where the API server is and how to authenticate: a kubeconfig file, or the pod's service account
    credentials  tokens and client certificates that change while the process runs: token files, `exec` plugins
    proxy        which HTTP proxy a connection goes through
    transport    HTTP/1.1 over pooled connections: one exchange, or one streamed response
    websocket    one connection in both directions, for commands in containers
    errors       what the API server refuses, as leaves of the one error tree
    client       get, list, create, apply, patch, delete, watch; objects are plain JSON dictionaries
    cache        a list-watch copy of one kind, with an index by owner
    queue        keys to reconcile: each once, delayed, or rate limited after a failure
    controller   queue and workers around a reconcile function
    process      run until a signal, lead by a lease, the page of a readiness probe
    rights       what this process may do, as the API server says
    lease        one leader among several processes
    recorder     events that people see in `kubectl describe`
    apply        whether a write would change anything
    writer       writes that update the cache, and that are not repeated when a response was lost

`paddleflow.testing.api_server` is an API server inside the process, for tests. docs/internals/kube.md has the protocol and a
checklist for the next user of this package.
"""
