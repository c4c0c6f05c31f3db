"""Fingerprints of steps: each part by itself, and the same from version to version, or every cache would be empty."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.runs.facts import Fingerprints
from paddleflow.runs.fingerprints import changed_parts, fingerprints
from paddleflow.runs.values import Rendered
from paddleflow.spec.pipeline.model import FsMount, Pipeline, Step
from tests.run_world import RunWorld

STEP = Step("a", "true", docker_env="paddle:3")
PLAIN = Rendered("true", {"PF_RUN_ID": "run-1", "PF_LOOP_ARGUMENT": "", "LR": "0.1"}, {}, {}, {}, None)

texts = st.text(max_size=8)
tables = st.dictionaries(texts, texts, max_size=3)
numbers = st.dictionaries(texts, st.integers() | st.floats(allow_nan=False) | texts, max_size=3)
steps = st.builds(Rendered, texts, tables, numbers, tables, tables, st.none() | numbers)


def prints(
    rendered: Rendered = PLAIN,
    contents: Mapping[str, str] | None = None,
    scopes: Mapping[str, str] | None = None,
    *,
    step: Step = STEP,
    main: FsMount | None = None,
) -> Fingerprints:
    run = RunWorld(Pipeline("p", {"a": step}, main_fs=main)).state
    item = next(iter(run.instances.values()))
    return fingerprints(run, item, rendered, rendered.command, contents or {}, scopes or {})


def hashed(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def test_they_stay_what_they_are() -> None:
    found = prints()
    assert found.first == "b2ebdac423e9a5b2cb21c17f56db203be8a489f0f75e50abbd0bb55331cb79a9"
    assert found.second == "31cb927601b1bddf437ee249824156d26bd8da2963465999a85dc391d8b3b813"


@given(steps, tables, tables)
def test_they_are_hashes_of_hashes(rendered: Rendered, contents: dict[str, str], scopes: dict[str, str]) -> None:
    found = prints(rendered, contents, scopes)
    does = {
        "command": rendered.command,
        "docker_env": "paddle:3",
        "env": {key: value for key, value in rendered.env.items() if key != "PF_RUN_ID"},
        "extra_fs": [],
        "inputs": sorted(rendered.inputs),
        "job": rendered.job,
        "main_fs": [],
        "outputs": sorted(rendered.outputs),
        "parameters": rendered.parameters,
    }
    reads = {"input contents": contents, "fs_scope": scopes}
    first, second = ({name: hashed(value) for name, value in parts.items()} for parts in (does, reads))
    assert (found.first, found.second) == (hashed(first), hashed(second))
    assert json.loads(found.parts) == first | second


def test_a_miss_names_the_parts_that_changed() -> None:
    before = prints().parts
    mount = FsMount("store", mount_path="/data")
    for name, after in {
        "command": prints(replace(PLAIN, command="false")),
        "docker_env": prints(step=replace(STEP, docker_env="paddle:2")),
        "env": prints(replace(PLAIN, env={**PLAIN.env, "LR": "0.2"})),
        "extra_fs": prints(step=replace(STEP, extra_fs=(mount,))),
        "inputs": prints(replace(PLAIN, inputs={"data": "x"})),
        "job": prints(replace(PLAIN, job={"framework": "paddle"})),
        "main_fs": prints(main=mount),
        "outputs": prints(replace(PLAIN, outputs={"model": "x"})),
        "parameters": prints(replace(PLAIN, parameters={"epochs": 3})),
        "input contents": prints(contents={"data": "1"}),
        "fs_scope": prints(scopes={"store:/x": "1"}),
    }.items():
        assert changed_parts(after.parts, before) == [name]


def test_what_differs_from_run_to_run_does_not_count() -> None:
    other = replace(PLAIN, env={**PLAIN.env, "PF_RUN_ID": "run-2", "PF_STEP_NAME": "b"}, inputs={"data": "run-2/x"})
    assert prints(other) == prints(replace(PLAIN, inputs={"data": "run-1/x"}))
