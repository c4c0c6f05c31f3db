"""Reconciling one PaddleJob. Pure: values in, values out.

job        the object as a value: spec, status, and the operator's options
pods       the pods of a job as members
contract   the environment of each member
manifests  the pods, the Service and the ConfigMaps; `gang` the PodGroup
status     the status, read and rendered
formation  failures, losses, scaling and suspension: whether the members stay together
reconcile  all of it: from the job and its children to the writes
"""
