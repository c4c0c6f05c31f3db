"""PURE. Round-based policies for training jobs that can be stopped and moved: every round, who has how many GPUs where.

`tiresias` and `optimus` are the policies of the literature, kept so that the simulator can be held against published
figures; `goodput` is ours. None of them knows the simulator; it hands them values and calls `allot`.
"""
