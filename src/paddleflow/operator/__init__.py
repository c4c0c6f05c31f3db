"""Controllers for Kubernetes: one folder of pure functions per kind, and the wiring that runs them.

`paddlejob.reconcile` decides from a job and its children what is to be written; nothing in that folder does any I/O.
`wiring` brings watch caches, the work queue and the decisions together. Called by `paddleflow operator`.
"""
