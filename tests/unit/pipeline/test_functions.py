"""`@step`: plain functions as steps. Compiled steps are really run, each by the shell, as the platform does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow import PaddleFlowSDKException
from paddleflow.pipeline import DAG, PF_LOOP_ARGUMENT, Artifact, ContainerStep, Parameter, Pipeline, step
from paddleflow.pipeline.functions import command

OUTSIDE = 3


class Platform:
    """Just enough of one: runs the steps of a compiled pipeline in their order, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: dict[str, str] = {}
        self.values: dict[str, str] = {}

    def run(self, pipeline: Pipeline, **parameters: object) -> Platform:
        for name, component in pipeline.compile()["entry_points"].items():
            self.run_step(name, component, parameters)
        return self

    def run_step(self, name: str, document: dict[str, Any], given: dict[str, object]) -> None:
        own: dict[str, str] = {}
        for key, value in document.get("parameters", {}).items():
            plain = value["default"] if isinstance(value, dict) else value
            own[key] = self.filled(str(given.get(key, plain)), self.values)
            self.values[f"{name}.{key}"] = own[key]
        artifacts = document.get("artifacts", {})
        env = {key: self.filled(value, own) for key, value in document.get("env", {}).items()}
        for key, value in artifacts.get("input", {}).items():
            env[f"PF_INPUT_ARTIFACT_{key.upper()}"] = own[key] = self.filled(value, self.values)
        for key in artifacts.get("output", []):
            path = str(self.folder / f"{name}.{key}")
            env[f"PF_OUTPUT_ARTIFACT_{key.upper()}"] = own[key] = self.values[f"{name}.{key}"] = path
        assert not re.search(r"\{\{|\}\}", document["command"].replace("{{out}}", ""))
        done = subprocess.run(
            ["sh", "-c", f"cd {self.folder}; {document['command']}"],
            env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "LC_ALL": "C", **env},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        self.said[name] = done.stdout
        assert done.returncode == 0, done.stderr

    def filled(self, text: str, known: dict[str, str]) -> str:
        return re.sub(r"\{\{\s*([\w.-]+)\s*\}\}", lambda found: known[found[1]], text)

    def kept(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform(tmp_path)


def test_values_go_from_function_to_function(platform: Platform) -> None:
    @step(outputs=["even", "odd"])
    def split(count: int, start=0):  # type: ignore[no-untyped-def]
        """Doc with 'quotes' and a $HOME and a `tick`."""
        import itertools

        numbers = list(itertools.islice(range(start, start + count), count))
        return {"even": [n for n in numbers if n % 2 == 0], "odd": [n for n in numbers if n % 2]}

    @step
    def add(numbers):  # type: ignore[no-untyped-def]
        return sum(numbers)

    @step
    def show(total, label="x", options=None):  # type: ignore[no-untyped-def]
        print(label, total, options)

    @Pipeline(name="numbers")
    def numbers(count: int = 5) -> None:
        parts = split(count)
        show(add(parts["even"]), label='it\'s "ü" $1 ; `x`', options={"a": [True, None]})
        show([add(parts["odd"]), 7])

    platform.run(numbers())
    assert platform.kept("split.even") == [0, 2, 4]
    assert platform.kept("add.result") == 6
    assert platform.said["show"] == "it's \"ü\" $1 ; `x` 6 {'a': [True, None]}\n"
    assert platform.said["show-2"] == "x [4, 7] None\n"
    assert list(numbers().compile()["entry_points"]) == ["split", "add", "show", "add-2", "show-2"]


def test_plain_numbers_and_texts_are_parameters_that_a_run_may_replace(platform: Platform) -> None:
    @step
    def report(number: int, share: float = 0.5, text="a", flag: bool = False):  # type: ignore[no-untyped-def]
        return [number, share, text, flag]

    build = Pipeline(name="p")(lambda: report(Parameter(4, "int"), flag=False))
    assert build().compile()["entry_points"]["report"]["parameters"] == {
        "number": {"default": 4, "type": "int"},
        "share": 0.5,
        "text": "a",
    }
    platform.run(build(), number="9", share="1", text="12")
    assert platform.kept("report.result") == [9, 1.0, "12", False]


def test_artifacts_of_other_steps_come_as_paths(platform: Platform) -> None:
    @step
    def read(file, same: Path):  # type: ignore[no-untyped-def]
        return [file.read_text().strip(), same.name]

    @step
    def make():  # type: ignore[no-untyped-def]
        return 1

    @Pipeline(name="p", docker_env="i")
    def build() -> None:
        shell = ContainerStep(name="shell", command="echo hello > $PF_OUTPUT_ARTIFACT_OUT", outputs={"out": Artifact()})
        read(shell.outputs["out"], make())

    platform.run(build())
    assert platform.kept("read.result") == ["hello", "make.result"]


def test_parameters_of_other_steps_and_texts_made_of_them(platform: Platform) -> None:
    @step
    def say(text: str, epochs):  # type: ignore[no-untyped-def]
        return [text, epochs]

    @Pipeline(name="p", docker_env="i")
    def build() -> None:
        first = ContainerStep(name="first", command="true", parameters={"epochs": 3, "name": "net"})
        say(f"{first.parameters['name']}-model", first.parameters["epochs"])

    platform.run(build())
    assert platform.kept("say.result") == ["net-model", 3]


def test_what_a_loop_made_comes_as_a_list() -> None:
    @step
    def square(number: int):  # type: ignore[no-untyped-def]
        return number**2

    @step
    def total(numbers):  # type: ignore[no-untyped-def]
        return sum(numbers)

    @Pipeline(name="p")
    def build() -> None:
        total(square.options(loop_argument=[1, 2])(PF_LOOP_ARGUMENT))
        with DAG(name="each", loop_argument=[1]):
            total.options(name="inside")(square(3))

    found = build().compile()["entry_points"]
    assert '"content", "PF_INPUT_ARTIFACT_NUMBERS", true' in found["total"]["command"]
    assert '"content", "PF_INPUT_ARTIFACT_NUMBERS", false' in found["each"]["entry_points"]["inside"]["command"]
    assert found["square"]["parameters"] == {"number": "{{PF_LOOP_ARGUMENT}}"}


def test_a_function_that_returns_nothing_leaves_nothing() -> None:
    @step
    def hello():  # type: ignore[no-untyped-def]
        def inner() -> int:
            return 1

        print(inner())

    found = Pipeline(name="p")(lambda: hello())().compile()["entry_points"]["hello"]
    assert "artifacts" not in found
    with pytest.raises(PaddleFlowSDKException, match=r"has not one output.*returns nothing"):
        Pipeline(name="p")(lambda: hello().result)()
    assert hello.function() is None


def test_text_with_braces_survives(platform: Platform) -> None:
    @step
    def braces(text):  # type: ignore[no-untyped-def]
        return f"{{{text}}}" + "{{PF_RUN_ID}}"

    platform.run(Pipeline(name="p")(lambda: braces("{{x}} {{braces.text}}"))())
    assert platform.kept("braces.result") == "{{{x}} {{braces.text}}}{{PF_RUN_ID}}"


def test_wrong_returns_end_the_step_with_a_reason(platform: Platform) -> None:
    @step(outputs=["a", "b"])
    def short():  # type: ignore[no-untyped-def]
        return {"a": 1}

    @step
    def strange():  # type: ignore[no-untyped-def]
        return {1, 2}

    with pytest.raises(AssertionError, match=r"step short returned \['a'\], it must return a dict of a, b"):
        platform.run(Pipeline(name="p")(lambda: short())())
    with pytest.raises(AssertionError, match="step strange: its result cannot be kept as JSON"):
        platform.run(Pipeline(name="p")(lambda: strange())())


@settings(max_examples=25)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200), st.sampled_from(["\nPADDLEFLOW_STEP\n", "", "'''"])
)
def test_any_text_in_the_source_survives(text: str, more: str) -> None:
    source = f"def f():\n    print(ascii({(text + more)!r}))"
    done = subprocess.run(
        ["sh", "-c", command(source, "f", "[]", [], sys.executable)], capture_output=True, text=True, check=True
    )
    assert done.stdout == ascii(text + more) + "\n"


@pytest.mark.parametrize("line", ["PADDLEFLOW_STEP", "{{ half", "half }}", "$(exit 3)`exit 4`"])
def test_a_line_of_its_own_survives(line: str) -> None:
    source = f"def f():\n    print('''\n{line}\n''')"
    made = command(source, "f", "[]", [], sys.executable)
    assert "{{" not in made
    assert "}}" not in made
    done = subprocess.run(["sh", "-c", made], capture_output=True, text=True, check=True)
    assert done.stdout == f"\n{line}\n\n"


def _wrong_closure() -> Any:
    inner = 1

    def closes():  # type: ignore[no-untyped-def]
        return inner

    return closes


def _wrong_global():  # type: ignore[no-untyped-def]
    return [OUTSIDE for _ in range(3)]


def _wrong_default(x=OUTSIDE):  # type: ignore[no-untyped-def]
    return x


async def _wrong_async() -> None:
    pass


def _wrong_generator():  # type: ignore[no-untyped-def]
    yield 1


def _wrong_arguments(*numbers):  # type: ignore[no-untyped-def]
    return numbers


WRONG: dict[str, tuple[Any, str]] = {
    "lambda": (lambda: 1, "lambda has no source"),
    "closure": (_wrong_closure(), "uses inner of the function around it"),
    "global": (_wrong_global, "uses OUTSIDE from outside"),
    "default": (_wrong_default, "a default uses OUTSIDE"),
    "async": (_wrong_async, "not async"),
    "generator": (_wrong_generator, "not a generator"),
    "built in": (len, "it must be a function made with def"),
    "any number of arguments": (_wrong_arguments, r"\*numbers cannot be given by name"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_function_that_cannot_stand_alone_is_refused(name: str) -> None:
    function, words = WRONG[name]
    with pytest.raises(PaddleFlowSDKException, match=words):
        step(function)


def test_calls_that_do_not_fit_are_refused() -> None:
    @step
    def one(value):  # type: ignore[no-untyped-def]
        return value

    def refused(build: Any, words: str) -> None:
        with pytest.raises(PaddleFlowSDKException, match=words):
            Pipeline(name="p")(build)()

    refused(lambda: one(), "missing a required argument: 'value'")
    refused(lambda: one({1, 2}), "argument value is {1, 2}")
    refused(lambda: one(one(1))["other"], r"no output named \[other\].*known: result")
    refused(lambda: one(ContainerStep(name="c")), "give one of its outputs or parameters")
    refused(lambda: one("x" * 200_000), "200000 bytes.*keep large values in files")
    refused(lambda: one(["x" * 200_000]), "keep large values in files")
    refused(lambda: one.options(colour=1), "colour")
