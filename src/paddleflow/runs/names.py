"""Names of components at run time: dotted for people, and what the paths and ids of the reference are made of. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from paddleflow.spec.pipeline.model import ENTRY_POINTS, POST_PROCESS, Component, Dag, Pipeline

ARTIFACTS = ".pipeline"  #: folder of all artifacts on a main storage


def component_names(pipeline: Pipeline) -> list[str]:
    """The dotted names of all components, from the entry points on, in the document's order."""
    return list(_walk(pipeline.entry_points, ""))


def _walk(children: Mapping[str, Component], path: str) -> Iterator[str]:
    for name, child in children.items():
        yield path + name
        if isinstance(child, Dag):
            yield from _walk(child.children, f"{path}{name}.")


def with_seq(name: str, seq: int) -> str:
    """The name of one element of a loop; the first one has no suffix."""
    return f"{name}-{seq}" if seq else name


def runtime_name(pipeline: str, full_name: str, *, post: bool = False) -> str:
    """What the folder of a step's artifacts is a hash of."""
    return f"{pipeline}.{POST_PROCESS if post else ENTRY_POINTS}.{full_name}"


def artifact_folder(run: str, pipeline: str, step: str, seq: int, full_name: str, *, post: bool = False) -> str:
    """Conditions a step's output artifacts lie, below what of the main storage the run sees."""
    digest = hashlib.md5(runtime_name(pipeline, full_name, post=post).encode(), usedforsecurity=False).hexdigest()
    return f"{ARTIFACTS}/{run}/{pipeline}/{step}-{seq}-{digest}"


def job_id(run: str, step: str, seq: int, number: int, tries: int) -> str:
    """The id of the job of one try: the same try has the same id, however often it is asked for."""
    return f"job-{run}-{with_seq(step, seq)}-{_hex(f'{run}/{number}/{tries}', 8)}".lower()


def dag_id(run: str, number: int) -> str:
    return f"dag-{run}-{_hex(f'{run}/{number}', 16)}"


def _hex(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
