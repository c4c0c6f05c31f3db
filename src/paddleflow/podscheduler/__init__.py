"""`paddleflow scheduler`: the scheduling core over the pods and nodes of a Kubernetes cluster.

`board` and everything it imports is pure; `binder`, `scheduler` and `main` talk to the API server.
"""
