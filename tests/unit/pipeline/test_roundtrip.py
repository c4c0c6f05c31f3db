"""Made-up pipelines: written and read again they are the same, the schema accepts them; made-up text never breaks the reader."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.errors import Invalid
from paddleflow.spec.pipeline import document as document_module
from paddleflow.spec.pipeline.document import dump, read, to_document
from paddleflow.spec.pipeline.drafts import DAG, STEP
from paddleflow.spec.pipeline.faults import DocumentFaults
from paddleflow.spec.pipeline.model import Cache, Component, Dag, FsMount, FsScope, Parameter, Pipeline, Retry, Step
from paddleflow.spec.pipeline.nodes import from_json, from_text
from paddleflow.spec.pipeline.options import CACHE, MOUNT, RETRY
from paddleflow.spec.pipeline.run_request import RunRequest, bind
from paddleflow.spec.pipeline.schema import json_schema
from tests import pipeline_documents as documents

# A name for things that stand beside each other; upper and lower case would count as the same.
NAMES = st.sampled_from([f"n{number}" for number in range(12)])
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12).filter(lambda text: "{{" not in text)
WORDS = st.one_of(
    TEXT, st.sampled_from(["yes", "on", "1e3", "007", "null", "0x1F", "true", "1.10", "~", "2021-01-01", "<<", "1_0"])
)
NUMBERS = st.one_of(st.integers(-(10**17), 10**17), st.floats(allow_nan=False, allow_infinity=False))
LISTS = st.recursive(st.one_of(WORDS, NUMBERS), lambda inner: st.lists(inner, max_size=3), max_leaves=5).filter(
    lambda value: isinstance(value, list)
)
PATHS = st.sampled_from(["", "a", "a/b", "data-1"])
PARAMETERS = st.one_of(
    st.builds(Parameter, st.one_of(WORDS, NUMBERS, LISTS, st.just("{{PF_RUN_ID}}-x"))),
    st.builds(Parameter, st.integers(-5, 5), st.just("int")),
    st.builds(Parameter, WORDS, st.just("string")),
    st.builds(Parameter, st.floats(0, 1), st.just("float")),
    st.builds(Parameter, LISTS, st.just("list")),
    st.builds(Parameter, st.sampled_from(["./a", "/b"]), st.just("path")),
)
#: at one place there may be one storage only
MOUNTS = st.builds(
    lambda name, path, placed, read_only: FsMount(name, f"/mnt/{name}/{path}" if placed else "", path, read_only),
    st.sampled_from(["fs1", "fs2"]),
    PATHS,
    st.booleans(),
    st.booleans(),
)
SCOPES = st.builds(FsScope, st.just("main"), st.sampled_from([("/",), ("a", "b/c")]))
CACHES = st.builds(Cache, st.booleans(), st.integers(-1, 100), st.lists(SCOPES, max_size=2).map(tuple))
RETRIES = st.builds(
    Retry,
    st.integers(0, 5),
    st.floats(0, 60),
    st.floats(1, 10),
    st.floats(0, 60),
    st.lists(st.integers(1, 255), max_size=2).map(tuple),
)
JOBS = st.one_of(
    st.none(),
    st.just(
        {"framework": "paddle", "members": [{"role": "worker", "replicas": 2, "image": "i", "command": ["a", "b"]}]}
    ),
    st.just(
        {
            "flavour": {"name": "flavour1"},
            "port": 80,
            "extensionTemplate": {"kind": "Pod", "spec": {"x": [1, None, True]}},
        }
    ),
)
LOOPS = st.one_of(st.none(), LISTS, st.just("[1, 2]"))
CONDITIONS = st.sampled_from(["", "1 > 2", "{{PF_RUN_ID}} == x"])


@st.composite
def levels(draw: st.DrawFn, main: Pipeline, depth: int = 0) -> dict[str, Component]:
    """Some components that stand beside each other; each may need those before it."""
    found: dict[str, Component] = {}
    for name in draw(st.lists(NAMES.map(lambda each: each.replace("n", "c")), min_size=1, max_size=4, unique=True)):
        found[name] = draw(components(name, dict(found), main, depth))
    return found


@st.composite
def components(draw: st.DrawFn, name: str, before: dict[str, Component], main: Pipeline, depth: int) -> Component:
    deps = tuple(draw(st.lists(st.sampled_from(sorted(before)), unique=True))) if before else ()
    parameters = draw(st.dictionaries(NAMES.map(lambda each: f"p_{each}"), PARAMETERS, max_size=3))
    inputs: dict[str, str] = {}
    for dep in deps:
        upstream = before[dep]
        if not upstream.condition and upstream.outputs and draw(st.booleans()):
            inputs[f"i_{len(inputs)}"] = f"{{{{{dep}.{min(upstream.outputs)}}}}}"
        if len(upstream.parameters) > 0 and draw(st.booleans()):
            parameters["p_up"] = Parameter(f"{{{{{dep}.{min(upstream.parameters)}}}}}")
    shared: dict[str, Any] = {"name": name, "parameters": parameters, "inputs": inputs, "deps": deps}
    shared |= {"condition": draw(CONDITIONS), "loop_argument": draw(LOOPS)}
    if depth < 2 and draw(st.integers(0, 3)) == 0:
        children = draw(levels(main, depth + 1))
        giving = [(key, child) for key, child in children.items() if child.outputs and not child.condition]
        outputs = {f"o_{key}": f"{{{{{key}.{min(child.outputs)}}}}}" for key, child in giving}
        return Dag(children=children, outputs=outputs, **shared)
    cache = draw(
        st.one_of(
            st.just(main.cache),
            CACHES.map(lambda own: Cache(own.enable, own.max_expired_time, own.fs_scope + main.cache.fs_scope)),
        )
    )
    job = draw(JOBS)
    return Step(
        command=draw(WORDS) if job is None else "",
        outputs=tuple(draw(st.lists(st.sampled_from(["o_1", "o_2"]), unique=True, max_size=2))),
        env=draw(st.dictionaries(st.sampled_from(["A", "B_1", "PF_X"]), WORDS, max_size=2)),
        docker_env=draw(st.sampled_from(["", "image:1.0"])),
        cache=cache,
        extra_fs=tuple(draw(st.lists(MOUNTS, max_size=1))) + main.extra_fs,
        job=job,
        retry=draw(RETRIES),
        timeout=draw(st.sampled_from([0.0, 1.5, 90.0])),
        **shared,
    )


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    main = Pipeline(
        name=draw(st.sampled_from(["p", "_a-b1"])),
        entry_points={},
        docker_env=draw(st.sampled_from(["", "image:2"])),
        parallelism=draw(st.integers(1, 20)),
        strategy=draw(st.sampled_from(["fail_fast", "continue"])),
        main_fs=FsMount("main", draw(st.sampled_from(["", "/mnt/m"])), draw(PATHS)),
        extra_fs=tuple(draw(st.lists(MOUNTS, max_size=2))),
        cache=draw(CACHES),
    )
    entry_points = draw(levels(main))
    post = Step("last", command="x", extra_fs=main.extra_fs) if draw(st.booleans()) else None
    values = {name: getattr(main, name) for name in main.__dataclass_fields__}
    return Pipeline(**{**values, "entry_points": entry_points, "post_process": post})


EXAMPLES = Path(__file__).parents[3] / "examples"
VALIDATOR = jsonschema_rs.validator_for(json_schema())


@settings(max_examples=40)
@given(pipelines())
def test_written_and_read_again_it_is_the_same(pipeline: Pipeline) -> None:
    document = to_document(pipeline)
    again = read(dump(document))
    assert again == pipeline
    assert list(VALIDATOR.iter_errors(document)) == []
    assert document_module.read_json(document) == pipeline
    bound = bind(again)
    assert read(dump(to_document(bound))) == bound


# ---- made-up text --------------------------------------------------------------------------------------------------

KEYS = sorted(
    {
        *document_module.TOP_JSON,
        *STEP,
        *DAG,
        *CACHE,
        *MOUNT,
        *RETRY,
        "input",
        "output",
        "component",
        "type",
        "a",
        "b",
        "<<",
        "",
    }
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), TEXT,
    st.sampled_from(["{{a}}", "{{a.b}}", "{{PF_PARENT.a}}", "a,b", "b", "[1]", "1 >", "30m", "..", "/a/../b", "fs", "step", "dag"]),
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)),
    max_leaves=40,
)
PIPES = st.fixed_dictionaries(
    {"name": st.just("p"), "entry_points": st.dictionaries(st.sampled_from(["a", "b"]), TREES, max_size=2)},
    optional=dict.fromkeys(("components", "post_process", "fs_options", "cache", "disabled", "env"), TREES),
)


@settings(max_examples=100)
@given(st.one_of(PIPES, TREES))
def test_any_tree_is_read_or_refused(tree: Any) -> None:
    with suppress(Invalid):
        bind(read(yaml.dump(tree)), RunRequest(parameters={"a": 1}))
    with suppress(Invalid):
        bind(document_module.read_json(tree), RunRequest(parameters={"a": 1}))


@settings(max_examples=100)
@given(st.one_of(st.text(max_size=200), st.binary(max_size=100), st.text("{}[]:,&*!|>-?'\"#%@` \n\tab<", max_size=80)))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    with suppress(Invalid):
        read(text)


@settings(max_examples=80)
@given(st.sampled_from(sorted(documents.ALL)), st.data())
def test_a_document_with_something_cut_out_is_read_or_refused(name: str, data: st.DataObject) -> None:
    text = documents.ALL[name]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    with suppress(Invalid):
        bind(read(text[:start] + data.draw(st.text("{}[]:,ab \n", max_size=3)) + text[end:]))


# ---- the schema ----------------------------------------------------------------------------------------------------


def test_the_schema_is_one() -> None:
    jsonschema_rs.meta.validate(json_schema())


@pytest.mark.parametrize("name", documents.ALL)
def test_the_schema_accepts_what_people_write(name: str) -> None:
    tree = read_tree(documents.ALL[name])
    assert list(VALIDATOR.iter_errors(tree)) == []


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda file: file.parent.name)
def test_the_examples_are_read_and_the_schema_accepts_them(file: Path) -> None:
    text = file.read_text("utf-8")
    assert list(VALIDATOR.iter_errors(read_tree(text))) == []
    pipeline = bind(read(text, file.name))
    assert read(dump(to_document(pipeline))) == pipeline


def read_tree(text: str) -> Any:
    return from_text(text, DocumentFaults()).plain()


def test_the_schema_knows_every_key() -> None:
    schema = json_schema()
    definitions = schema["$defs"]
    retry = next(each for each in definitions["retry"]["anyOf"] if each["type"] == "object")
    for properties, keys in (
        (schema["properties"], document_module.TOP),
        (definitions["step"]["properties"], STEP),
        (definitions["dag"]["properties"], DAG),
        (definitions["cache"]["properties"], CACHE),
        (definitions["mount"]["properties"], MOUNT),
        (retry["properties"], RETRY),
    ):
        assert set(properties) == set(keys.values())


@pytest.mark.parametrize(
    "document",
    [
        {"name": "p"},
        {"name": "1p", "entry_points": {"a": {"command": "x"}}},
        {"name": "p", "entry_points": {"a": {"comand": "x"}}},
        {"name": "p", "entry_points": {"a": {"command": "x", "parameters": {"b": True}}}},
        {"name": "p", "entry_points": {"a": {"entry_points": {"b": {}}, "command": "x"}}},
        {"name": "p", "entry_points": {"a": {"command": "x", "job": {"members": [{"replicas": 1}]}}}},
        {"name": "p", "entry_points": {"a": {"command": "x"}}, "failure_options": {"strategy": "slow"}},
        {"name": "p", "entry_points": {"a": {"command": "x"}}, "post_process": {"b": {}, "c": {}}},
        {"name": "p", "entry_points": {"a": {"command": "x"}}, "fs_options": {"main_fs": {}}},
    ],
)  # fmt: skip
def test_the_schema_refuses_what_the_reader_refuses(document: dict[str, Any]) -> None:
    assert list(VALIDATOR.iter_errors(document))
    with pytest.raises(Invalid):
        read(dump(document))


def test_json_nodes_keep_their_values() -> None:
    tree = {"a": [1, 2.5, "x", None, True, {"b": []}]}
    assert from_json(tree, DocumentFaults()).plain() == tree
