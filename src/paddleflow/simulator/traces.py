"""Reads the traces that experiments replay. The only module of the room that opens files.

Nothing of the traces is part of this project: whoever runs a benchmark names the folder. A missing file is answered with
the name of what is missing (`NotFound`).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from paddleflow.base.values import dataclass
from paddleflow.errors import NotFound
from paddleflow.simulator.applications import Application, Curve, Epoch

#: Where the measurements of an application say less than its owners did.
_EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
_LARGEST_LOCAL = {"yolov3": 8}
_ONE_GPU = {"ncf"}


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A discipline of a training workload."""

    job: str
    submitted_at: float
    application: str
    gpus: int  #: as its owner asked
    batch_size: int


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """A discipline of a cluster trace."""

    job: str
    submitted_at: float  #: seconds since the first discipline
    duration: float
    gpus: int
    group: str  #: the virtual cluster


def _rows(file: Path) -> Iterator[Mapping[str, str]]:
    if not file.is_file():
        raise NotFound(f"the trace {file} is missing", hint="name the folder that holds traces/ with --data")
    with gzip.open(file, "rt", newline="") if file.suffix == ".gz" else file.open(newline="") as lines:
        yield from csv.DictReader(lines)


def read_workload(file: Path) -> list[TrainingJob]:
    return [
        TrainingJob(r["name"], float(r["time"]), r["application"], int(r["num_replicas"]), int(r["batch_size"]))
        for r in _rows(file)
    ]


def read_application(folder: Path) -> Application:
    placements: dict[tuple[int, ...], list[tuple[int, tuple[float, float]]]] = {}
    for row in _rows(folder / "placements.csv"):
        key = tuple(int(digit) for digit in row["placement"])
        placements.setdefault(key, []).append(_times(row))
    larger: dict[tuple[int, int], list[tuple[int, tuple[float, float]]]] = {}
    for row in _rows(folder / "scalability.csv"):
        larger.setdefault((int(row["num_nodes"]), int(row["num_replicas"])), []).append(_times(row))
    validation = {
        int(file.stem.split("-")[1]): [
            Epoch(float(r["progress"]), float(r["iteration"]), float(r["grad_sqr"]), float(r["grad_var"]))
            for r in _rows(file)
        ]
        for file in sorted(folder.glob("validation-*.csv"))
    }
    if not validation:
        raise NotFound(f"the trace {folder}/validation-*.csv is missing", hint="name the folder that holds traces/")
    sorted_placements: dict[tuple[int, ...], Curve] = {key: sorted(rows) for key, rows in placements.items()}
    sorted_larger: dict[tuple[int, int], Curve] = {key: sorted(rows) for key, rows in larger.items()}
    return Application(
        folder.name, sorted_placements, sorted_larger, validation,
        _EPOCHS.get(folder.name), _LARGEST_LOCAL.get(folder.name), folder.name not in _ONE_GPU,
    )  # fmt: skip


def _times(row: Mapping[str, str]) -> tuple[int, tuple[float, float]]:
    return int(row["local_bsz"]), (float(row["step_time"]), float(row["sync_time"]))


def read_philly(file: Path) -> list[ClusterJob]:
    """All jobs that used a GPU, by submission."""
    found = []
    for row in _rows(file):
        if not row["timestamp"]:
            continue
        at = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp()
        found.append((at, float(row["duration"]), int(row["num_gpus"]), row["cluster"]))
    found.sort(key=lambda discipline: discipline[0])
    first = found[0][0] if found else 0.0
    return [
        ClusterJob(f"job-{serial}", at - first, duration, gpus, group)
        for serial, (at, duration, gpus, group) in enumerate(found)
    ]
