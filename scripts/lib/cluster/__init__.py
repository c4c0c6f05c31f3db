"""A real Kubernetes on one machine, made from source: what ``scripts/cluster`` runs.

Reads from top to bottom: ``parts`` (what can be built) and ``building`` (building it once); ``clusters`` (up, down, status)
over ``control_plane``, ``nodes`` and ``addons``; and beneath them small modules for one thing each: ``processes``,
``addresses``, ``keys``, ``images``, ``cgroups``, ``api``. Standard library only, so that it runs before anything is
installed. ``docs/internals/test-cluster.md`` tells the whole.
"""
