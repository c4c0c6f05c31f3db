"""Kubernetes: the base on which the operator, the cluster runtime, the pod scheduler and the CSI driver stand.

    resources   which kinds there are, their paths, the parts of an object that everybody asks for
    config      where the API server is and who we are there: a kubeconfig file, or the pod's service account
    wire        HTTP/1.1 over kept connections: one exchange, or one answer that grows
    refusals    what the API server refuses, as leaves of the one error tree
    client      get, list, create, apply, patch, delete, watch: objects are plain JSON dictionaries
    cache       a list-watch copy of one kind, with an index by owner
    queue       keys to look at: each once, later, or again with back-off
    controller  queue and workers around a reconcile function
    lease       one leader among several processes
    recorder    events that people see in `kubectl describe`
    apply       whether a write would change anything
    writer      writes that the cache learns of, and that are not repeated when an answer was lost
    manifests   small pieces of objects
    memory      an API server inside this process, for tests and for trying things out; what it keeps is in shelf, and
                fields, patches and selectors are the API's own rules for them

docs/internals/kube.md has the protocol and a checklist for its next user.
"""
