"""Pipelines that run: the machine of a run, its rows, artifacts, cache, and the documents that are registered by name."""
