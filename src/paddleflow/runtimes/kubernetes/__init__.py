"""Attempts as pods of a Kubernetes cluster.

    pods                pure: names and manifests of pods, and what a pod's or a node's status means
    log_folder          logs and samples, collected into a folder of the server while the pods run
    kubernetes_runtime  the `Runtime`: creates, follows, stops and forgets pods

docs/internals/kubernetes-runtime.md has the protocol.
"""
