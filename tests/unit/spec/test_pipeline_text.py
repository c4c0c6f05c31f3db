"""YAML itself: what plain words stand for, what is refused before the language begins, and how much a document may cost."""

from __future__ import annotations

import pytest
import yaml

from paddleflow.errors import Invalid
from paddleflow.spec.pipeline import nodes
from paddleflow.spec.pipeline.document import read
from paddleflow.spec.pipeline.faults import DocumentFaults, PipelineFault
from paddleflow.spec.pipeline.model import Parameter
from paddleflow.spec.pipeline.nodes import from_json, from_text


def value(text: str) -> dict[str, object]:
    found = from_text(text, DocumentFaults()).plain()
    assert isinstance(found, dict)
    return found


def refused(text: str | bytes) -> PipelineFault:
    """The first fault of the YAML itself; those of the language have a path."""
    with pytest.raises(Invalid) as caught:
        read(text)
    assert caught.value.code == "MalformedYaml"
    return next(
        fault
        for fault in caught.value.details
        if isinstance(fault, PipelineFault) and not fault.path and "no attribute" not in fault.message
    )


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *((word, word) for word in ("yes", "no", "on", "off", "y", "n", "Yes")),
        ("true", True), ("True", True), ("false", False), ("null", None), ("~", None), ("", None),
        ("10", 10), ("-3", -3), ("+3", 3), ("0", 0), ("0x1F", 31), ("0o17", 15),
        ("1.5", 1.5), ("1e-3", 0.001), (".5", 0.5), ("1.", 1.0),
        ("007", "007"), ("1:30", "1:30"), ("1_000", "1_000"), ("2021-01-01", "2021-01-01"), ("1.2.3", "1.2.3"),
        (".inf", ".inf"), (".nan", ".nan"), ("1e999", "1e999"), ("9" * 30, "9" * 30),
        ("'10'", "10"), ('"true"', "true"), ("!!str 10", "10"), ("!!int 10", 10), ("!!float 10", 10.0),
        ("|\n  a\n  b", "a\nb"), (">-\n  a\n  b", "a b"),
    ],
)  # fmt: skip
def test_what_a_word_stands_for(word: str, expected: object) -> None:
    found = value(f"x: {word}")
    assert found == {"x": expected}
    assert [type(each) for each in found.values()] == [type(expected)]


def test_on_is_a_key_like_any_other() -> None:
    assert value("on: 1\nyes: 2\nno: 3") == {"on": 1, "yes": 2, "no": 3}


def test_env_takes_numbers_as_they_are_written() -> None:
    pipeline = read("name: p\nentry_points: {a: {command: x, env: {A: 1.10, B: 0x10, C: 007, D: 1e3, E: on, F: }}}")
    step = pipeline.entry_points["a"]
    assert getattr(step, "env", {}) == {"A": "1.10", "B": "0x10", "C": "007", "D": "1e3", "E": "on", "F": ""}


def test_old_words_for_booleans_count_where_a_boolean_stands() -> None:
    pipeline = read("name: p\ncache: {enable: yes}\nentry_points: {a: {command: x, cache: {enable: off}}}")
    assert pipeline.cache.enable is True
    assert getattr(pipeline.entry_points["a"], "cache").enable is False  # noqa: B009  # either kind of component


def test_anchors_aliases_and_merges() -> None:
    text = """
name: p
entry_points:
  a: &a {command: x, env: &env {A: "1", B: "2"}}
  b:
    <<: *a
    env: {<<: [*env, {C: "3"}], B: own}
"""
    pipeline = read(text)
    first, second = pipeline.entry_points["a"], pipeline.entry_points["b"]
    assert getattr(second, "command") == "x"  # noqa: B009
    assert getattr(first, "env") == {"A": "1", "B": "2"}  # noqa: B009
    assert getattr(second, "env") == {"A": "1", "B": "own", "C": "3"}  # noqa: B009


def test_json_is_yaml() -> None:
    pipeline = read('{"name": "p", "entry_points": {"a": {"command": "x", "parameters": {"n": 1.50}}}}')
    assert pipeline.entry_points["a"].parameters == {"n": Parameter(1.5)}


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("name: p\nname: q", "2:1", "the key [name] is given twice, first in line 1", "keep one"),
        ("a: {b: 1, c: 2, b: 3}", "1:17", "the key [b] is given twice", ""),
        ("name: {{x}}", "1:8", "a key is a map, expected text", "quotes around a template"),
        ("a: {{x}} b", "1:5", "a key is a map", "quotes"),
        ("? [a]\n: b", "1:3", "a key is a list, expected text", ""),
        ("1: a", "1:1", "the key [1] is an integer, expected text", "quotes"),
        ("true: a", "1:1", "the key [true] is a boolean, expected text", "quotes"),
        ("~: a", "1:1", "a key is empty, expected text", ""),
        ("a: &a [b]\n*a : c", "2:1", "a key is a list, expected text", ""),
        ("a: 1\n---\nb: 2", "2:1", "several documents", "---"),
        ("a:\n\t- b", "2:1", "not YAML", "spaces"),
        ("a: [1, 2", "2:1", "not YAML", ""),
        ("a: 'x", "1:6", "not YAML", ""),
        ("a: *b", "1:4", "the alias *b stands for nothing", ""),
        ("a: &a [*a]", "1:8", "the alias *a stands for nothing, or for something that it is part of", ""),
        ("a: !!python/object:os.system x", "1:4", "tag [python/object:os.system] is not supported", ""),
        ("a: !!int x", "1:4", "the tag [int] is not supported for [x]", ""),
        ("a: !mine {b: c}", "1:4", "the tag [!mine] is not supported", ""),
        ("a: {<<: b}", "1:9", "<< takes a map or a list of maps, found text", ""),
        ("a: \x01", "", "not YAML", ""),
        ("", "", "the document is empty", ""),
        ("# only words", "", "the document is empty", ""),
        (b"name: \xff\xfe", "", "not UTF-8", "UTF-8"),
        ("name: p".encode("utf-16"), "", "not UTF-8", "UTF-8"),
        ("name: \ud800", "", "not UTF-8", "UTF-8"),
    ],
)  # fmt: skip
def test_what_is_not_read(text: str | bytes, place: str, message: str, hint: str) -> None:
    fault = refused(text)
    assert fault.where == place
    assert message in fault.message
    assert hint in fault.hint


def test_a_fault_of_the_yaml_does_not_hide_those_of_the_language() -> None:
    with pytest.raises(Invalid) as caught:
        read("name: p\nname: q\nentry_points: {a: {comand: x}}")
    assert caught.value.code == "MalformedYaml"
    assert [fault.where for fault in caught.value.details] == ["2:1", "3:20 entry_points.a"]


def test_a_list_is_no_pipeline() -> None:
    with pytest.raises(Invalid) as caught:
        read("- a")
    assert [fault.message for fault in caught.value.details] == ["a pipeline should be a map, found a list"]


def test_a_mark_at_the_front_is_no_text() -> None:
    assert read(b"\xef\xbb\xbfname: p\nentry_points: {a: {command: x}}").name == "p"


def test_ten_megabytes_are_refused_with_the_number() -> None:
    fault = refused(b"a: " + b"x" * 10_000_000)
    assert fault.message == "the document has 10,000,003 bytes, at most 4,194,304 are read"
    assert refused("ä" * 3_000_000).message == "the document has 6,000,000 bytes, at most 4,194,304 are read"


def test_brackets_nested_a_million_deep() -> None:
    assert refused("[" * 1_000_000).message == "the document is nested more than 64 deep"
    assert refused("a:\n" + "".join(f"{' ' * depth}a:\n" for depth in range(1, 80))).line == 65


def test_aliases_that_explode() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "more than 300,000 values, those behind aliases included" in refused("\n".join(lines)).message


def test_aliases_nested_deep() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100))]
    assert "nested more than 64 deep, what aliases stand for included" in refused("\n".join(lines)).message


def test_many_values() -> None:
    assert "more than 300,000 values" in refused("a: [" + "1," * 310_000 + "]").message


def test_components_that_explode_by_references() -> None:
    levels = ["components:\n  c0: {command: x}"]
    for level in range(1, 8):
        children = ", ".join(f"s{n}: {{reference: {{component: c{level - 1}}}}}" for n in range(10))
        levels.append(f"  c{level}: {{entry_points: {{{children}}}}}")
    with pytest.raises(Invalid) as caught:
        read("name: p\nentry_points: {a: {reference: {component: c7}}}\n" + "\n".join(levels))
    assert caught.value.details[0].message == "workflow has 11,111,111 components, at most 50,000 are taken"


def test_json_has_the_same_limits() -> None:
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    for document, message in (
        (deep, "nested more than 64 deep"),
        ([1] * 310_000, "more than 300,000 values"),
        ({1: 2}, "the key 1 is an integer, expected text"),
        ({"a": object()}, "a value of type object is not JSON"),
    ):
        with pytest.raises(Invalid) as caught:
            from_json(document, DocumentFaults())
        assert message in caught.value.message


def test_the_slow_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library has no libyaml."""
    text = "name: p\nentry_points: {a: {command: x, env: &e {A: 1.10}}, b: {command: y, env: *e, deps: a}}"
    quick = read(text)
    monkeypatch.setattr(nodes, "_Loader", yaml.SafeLoader)
    assert read(text) == quick
    assert refused("[" * 5000).message == "the document is nested more than 64 deep"


def test_references_nested_deep() -> None:
    """However the components stand: the reader never gets lost in them."""
    last = 5000
    forward = [f"  c{n}: {{reference: {{component: c{n + 1}}}}}" for n in range(last)] + [f"  c{last}: {{command: x}}"]
    dags = ["  c0: {command: x}"]
    dags += [f"  c{n}: {{entry_points: {{e: {{reference: {{component: c{n - 1}}}}}}}}}" for n in range(1, last)]
    for components, name in (
        (forward, "c0"),
        (forward[::-1], "c0"),
        (dags, f"c{last - 1}"),
        (dags[::-1], f"c{last - 1}"),
    ):
        with pytest.raises(Invalid) as caught:
            read(
                f"name: p\nentry_points: {{a: {{reference: {{component: {name}}}}}}}\ncomponents:\n"
                + "\n".join(components)
            )
        assert {
            fault.message.removesuffix(" deep")
            for fault in caught.value.details
            if "more" not in fault.message.split()[-1]
        } == {"references and dags are nested more than 40"}


def test_as_deep_as_allowed() -> None:
    components = ["  c0: {command: x}", *(f"  c{n}: {{reference: {{component: c{n - 1}}}}}" for n in range(1, 39))]
    for order in (components, components[::-1]):
        read("name: p\nentry_points: {a: {reference: {component: c38}}}\ncomponents:\n" + "\n".join(order))


def test_a_long_chain_and_a_long_circle() -> None:
    steps = [f"  s{n}: {{command: x, deps: s{n - 1}}}" for n in range(1, 5000)]
    assert len(read("name: p\nentry_points:\n  s0: {command: x}\n" + "\n".join(steps)).entry_points) == 5000
    with pytest.raises(Invalid) as caught:
        read("name: p\nentry_points:\n  s0: {command: x, deps: s4999}\n" + "\n".join(steps))
    assert [fault.message[:50] for fault in caught.value.details] == [
        "workflow is not acyclic: s0→s4999→s4998→s4997→s499"
    ]


def test_many_circles_are_told_in_part() -> None:
    deps = ", ".join(f"s{n}" for n in range(60))
    steps = "\n".join(f"  s{n}: {{command: x, deps: [{deps}]}}" for n in range(60))
    with pytest.raises(Invalid) as caught:
        read(f"name: p\nentry_points:\n{steps}")
    messages = [fault.message for fault in caught.value.details]
    assert sum("not acyclic" in message for message in messages) == 20
    assert sum("depends on itself" in message for message in messages) == 60


def test_numbers_that_json_alone_can_hold() -> None:
    for number, message in (
        (10**400, "more than 64 bits"),
        (float("nan"), "the number nan"),
        (float("inf"), "the number inf"),
    ):
        with pytest.raises(Invalid, match=message):
            from_json({"timeout": number}, DocumentFaults())
