"""Templates: what they name, and that a value which is exactly one template keeps its type."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.spec.pipeline.templates import Reference, as_text, references, render, render_text, render_tree, single

VALUES: dict[str, Any] = {"n": 5, "f": 2.0, "small": 0.00001, "large": 1e22, "list": [1, "a", [2.5]], "text": "x"}


def lookup(reference: Reference) -> Any:
    return f"<{reference}>" if reference.component else VALUES[reference.name]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{{a}}", [Reference("", "a")]),
        ("{{ a }} and {{  b-c.d  }}", [Reference("", "a"), Reference("b-c", "d")]),
        ("{{PF_PARENT.PF_LOOP_ARGUMENT}}", [Reference("PF_PARENT", "PF_LOOP_ARGUMENT")]),
        ("docker inspect -f '{{.State}}'", []),
        ("{{ a b }} {{a.b.c}} {{}} {a} {{1a}} {{a\n}}", []),
        ("no", []),
        (5, []),
        (["{{a}}"], []),
    ],
)
def test_what_is_named(text: object, found: list[Reference]) -> None:
    assert references(text) == found


def test_exactly_one() -> None:
    assert single("{{a.b}}") == Reference("a", "b")
    assert single(" {{a}}") is None
    assert single("{{a}}{{b}}") is None
    assert single(5) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{{n}}", 5),
        ("{{ f }}", 2.0),
        ("{{list}}", [1, "a", [2.5]]),
        ("{{n}}0", "50"),
        ("{{f}}|{{small}}|{{large}}", "2|0.00001|10000000000000000000000"),
        ("l={{list}}", "l=[1 a [2.5]]"),
        ("{{up.p}}-{{text}}", "<up.p>-x"),
        ("{{.n}}", "{{.n}}"),
        (7, 7),
        (["{{n}}"], ["{{n}}"]),
    ],
)
def test_filling_in(value: object, expected: object) -> None:
    found = render(value, lookup)
    assert found == expected
    assert type(found) is type(expected)


def test_text_stays_text() -> None:
    assert render_text("{{n}}", lookup) == "5"


def test_what_is_filled_in_is_not_read_again() -> None:
    assert render_text("{{a}} {{b}}", lambda reference: "{{b}}" if reference.name == "a" else "x") == "{{b}} x"


def test_a_whole_document() -> None:
    job = {"members": [{"command": "train {{n}}", "replicas": 2, "args": ["{{text}}", "{{n}}"]}], "{{n}}": True}
    assert render_tree(job, lookup) == {
        "members": [{"command": "train 5", "replicas": 2, "args": ["x", 5]}],
        "{{n}}": True,
    }


def test_values_as_text() -> None:
    assert [as_text(value) for value in (True, None, -0.5, 3, "s", 123456789.25)] == [
        "true",
        "",
        "-0.5",
        "3",
        "s",
        "123456789.25",
    ]
