"""The pipeline language: what a document says, every fault of one that is wrong. Pure; light enough for the client.

`document` makes a `model.Pipeline` of YAML or JSON, with references resolved and everything checked; `run_request` applies what
one run asks for (parameters, image, disabled steps, file system).
"""
