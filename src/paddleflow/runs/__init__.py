"""Runs of pipelines: what one is, the pure machine that moves it, its rows, artifacts, and results used again.

`machine.advance` decides, `engine.run_engine` carries out; `runs` holds what people do to runs. The language
of the documents is in `spec.pipeline`; `pipelines` keeps those that are registered by name.
"""
