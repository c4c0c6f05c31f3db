"""PaddleJob: from a job and its children to the writes that are missing. Pure.

`job` reads, `members` knows who belongs to a job, `contract` what each of them is told, `manifests` and `gang` make the
objects, `losses` says what a failure means, `account` writes the status, `reconcile` brings them together in one pass.
"""
