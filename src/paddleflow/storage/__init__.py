"""Storages (file systems): where the files of users, jobs and pipelines are.

`model` has the value, `places` says which url and folder is allowed (`check_folder` is the only one that reads the
disk), `storages` are the transactions. This release has type ``local``: a folder of this machine.
"""
