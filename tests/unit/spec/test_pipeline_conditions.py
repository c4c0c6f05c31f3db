"""Conditions: the documented grammar, values as values, and agreement with a naive evaluator on random expressions."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.errors import Invalid
from paddleflow.spec.pipeline.conditions import check, evaluate
from paddleflow.spec.pipeline.patterns import NotAPattern, search
from paddleflow.spec.pipeline.templates import Reference

VALUES: dict[str, Any] = {
    "n": 5,
    "f": 0.25,
    "text": "abc",
    "dashed": "2021-01-01",
    "number": "10",
    "version": "1.10",
    "file": " 0.95\n",
    "flag": "true",
    "off": "false",
    "list": ["a", "b", 3],
    "quoted": "it's",
    "expression": "1 || true",
    "nothing": None,
}


def lookup(reference: Reference) -> Any:
    assert not reference.component
    return VALUES[reference.name]


def holds(condition: str) -> bool:
    return evaluate(condition, lookup)


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        # the reference's own
        ("10 > 11", False), ("9 < 10", True), ("abc > def", False), ("abc < def", True), ("'9' > '10'", True),
        # empty
        ("", True), ("  ", True),
        # comparisons
        ("1 == 1.0", True), ("1 != 2", True), ("2 >= 2", True), ("2 <= 1", False), ("a == 'a'", True), ('a == "a"', True),
        ("1 == a", False), ("true == true", True), ("true == a", False), ("a == true", False),
        # arithmetic and its ranks
        ("1 + 2 * 3 == 7", True), ("(1 + 2) * 3 == 9", True), ("10 - 4 - 3 == 3", True), ("2 * 3 % 4 == 2", True),
        ("2 ** 3 == 8", True), ("2 ** 3 ** 2 == 64", True), ("-2 ** 2 == 4", True), ("8 / 4 / 2 == 1", True),
        ("7 % 4 == 3", True), ("-7 % 4 == -3", True), ("1.5e3 == 1500", True), ("0x10 == 16", True), (".5 + .5 == 1", True),
        ("6 & 3 == 2", True), ("6 | 3 == 7", True), ("6 ^ 3 == 5", True), ("1 << 4 == 16", True), ("256 >> 4 == 16", True),
        ("~1 == -2", True), ("1 + 1 << 2 == 8", True), ("1 << 1 & 2 == 2", True),
        # text
        ("a + b == ab", True), ("a + 1 == a1", True), ("'a b' == 'a b'", True), (r"'it\'s' == {{quoted}}", True),
        ("a.b == 'a.b'", True), ("名字 == '名字'", True),
        # truth
        ("true", True), ("!false", True), ("!!true", True), ("true && false || true", True),
        ("false && true || false", False), ("true || 1", True), ("false && 1", False), ("1 > 2 || 3 > 2 && 2 > 1", True),
        ("1 < 2 ? true : false", True), ("1 > 2 ? true : false", False), ("1 > 2 ? true : 2 > 3 ? true : 1 == 1", True),
        ("{{nothing}} ?? a == a", True), ("({{n}} ?? 1) == 5", True),
        # lists
        ("a in (a, b)", True), ("c in (a, b)", False), ("1 in (1, 2)", True), ("a in ('a')", True), ("a in {{list}}", True),
        ("3 in {{list}}", True), ("c in {{list}}", False), ("!(a in (b, c))", True), ("(1 + 1) in (2, 3)", True),
        # patterns
        ("abc =~ '^a.c$'", True), ("abc !~ 'd'", True), ("{{text}} =~ b", True), ("'a1' =~ '[0-9]'", True),
        # values are values
        ("{{n}} > 4", True), ("{{n}} + {{f}} == 5.25", True), ("{{dashed}} == '2021-01-01'", True), ("'{{dashed}}' == '2021-01-01'", True),
        ("{{number}} > 9", True), ("{{number}} == '10'", True), ("{{number}} + 1 == 11", True), ("{{version}} == '1.10'", True),
        ("{{version}} == 1.1", True), ("{{file}} > 0.9", True), ("{{number}} > {{n}}", True), ("{{number}} < '9'", True),
        ("{{flag}}", True), ("{{off}}", False), ("!{{off}} && {{flag}}", True), ("{{flag}} == true", True),
        ("{{expression}} == '1 || true'", True), ("{{ text }}_{{n}} == abc_5", True), ("x{{n}} == x5", True), ("-{{n}} == -5", True),
    ],
)  # fmt: skip
def test_what_holds(condition: str, answer: bool) -> None:
    assert holds(condition) is answer


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("1 >", "expected a value at character 4, the condition ends"),
        ("1 2", "expected an operator at character 3, found [2]"),
        ("(1 > 2", "expected [)] at character 7, the condition ends"),
        ("1 > 2)", "expected an operator at character 6, found [)]"),
        ("a == 'b", "a quote that is not closed at character 6"),
        ("a = b", "nothing begins with [= b] at character 3"),
        ("true ? 1", "expected [:] at character 9, the condition ends"),
        ("* 1", "expected a value at character 1, found [*]"),
        ("a, b", "expected an operator at character 2, found [,]"),
        ("{{ a b }}", "nothing begins with [{{ a b }}] at character 1"),
        ("(" * 200 + "1" + ")" * 200, "nested more than 100 deep"),
        ("1" + " + 1" * 300, "more than 200 operators"),
        ("a" * 20_000, "20,000 characters, at most 10,000 are read"),
    ],
)
def test_what_is_no_condition(condition: str, message: str) -> None:
    for use in (check, holds):
        with pytest.raises(Invalid) as caught:
            use(condition)
        assert message in caught.value.message
        assert caught.value.message.startswith("condition[")
        assert caught.value.code == "InvalidPipeline"


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("1", "must yield a boolean, it yields [1.0]"),
        ("abc", "must yield a boolean, it yields [abc]"),
        ("'true'", "must yield a boolean"),
        ("{{list}}", "must yield a boolean"),
        ("1 > a", "1 > text 'a': > takes two numbers or two texts"),
        ("true > false", "true > false: > takes two numbers or two texts"),
        ("{{dashed}} - 1 > 0", "text '2021-01-01' - 1: - takes two numbers"),
        ("a * 2 == 4", "* takes two numbers"),
        ("'10' > 9", "text '10' > 9"),
        ("!1", "! takes a boolean, found 1"),
        ("-a == b", "- takes a number, found text 'a'"),
        ("1 && true", "&& takes booleans, found 1"),
        ("1 ? true : false", "? takes booleans, found 1"),
        ("1 / 0 > 1", "1 / 0 has no value"),
        ("1 % 0 > 1", "1 % 0 has no value"),
        ("10 ** 1000 > 1", "has no value"),
        ("1e308 * 10 > 1", "has no value"),
        ("(0 - 8) ** 0.5 > 1", "has no value"),
        ("1 << 100 > 1", "1 << 100 has no value"),
        ("1 =~ '1'", "1 =~ text '1': =~ takes text and a pattern"),
        ("a =~ '('", "[(] cannot be searched for: there is a ( without )"),
        ("{{list}} + 1 > 2", "a list + 1: + takes two numbers"),
    ],
)
def test_what_has_no_answer(condition: str, message: str) -> None:
    check(condition)
    with pytest.raises(Invalid) as caught:
        holds(condition)
    assert message in caught.value.message


# ---- against a naive evaluator: the same tree, printed as a condition and computed directly --------------------------

Tree = Any
NUMBERS = st.integers(0, 20).map(float)


def _numeric() -> st.SearchStrategy[Tree]:
    leaf = st.tuples(st.just("number"), NUMBERS)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*"]), inner, inner),
            st.tuples(st.just("neg"), inner),
        ),
        max_leaves=8,
    )


def _truths() -> st.SearchStrategy[Tree]:
    words = st.tuples(st.just("text"), st.sampled_from(["a", "b-c", "10", "x y", "", "it's"]))
    numeric = _numeric()
    leaf = st.one_of(
        st.tuples(st.just("truth"), st.booleans()),
        st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), numeric, numeric),
        st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), words, words),
        st.tuples(st.just("in"), numeric, st.lists(numeric, min_size=1, max_size=3)),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["&&", "||"]), inner, inner),
            st.tuples(st.just("not"), inner),
            st.tuples(st.just("choice"), inner, inner, inner),
        ),
        max_leaves=8,
    )


def computed(tree: Tree) -> Any:
    kind = tree[0]
    if kind in ("number", "text", "truth"):
        return tree[1]
    if kind == "in":
        return computed(tree[1]) in [computed(each) for each in tree[2]]
    if kind == "choice":
        return computed(tree[2]) if computed(tree[1]) else computed(tree[3])
    if kind in ("neg", "not"):
        return -computed(tree[1]) if kind == "neg" else not computed(tree[1])
    left, right = computed(tree[1]), computed(tree[2])
    return {
        "+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
        "<": lambda: left < right, "<=": lambda: left <= right, ">": lambda: left > right, ">=": lambda: left >= right,
        "==": lambda: left == right, "!=": lambda: left != right,
        "&&": lambda: left and right, "||": lambda: left or right,
    }[kind]()  # fmt: skip


RANK = {
    "choice": 0,
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 3),
    "+": 4,
    "-": 4,
    "*": 5,
}


def printed(tree: Tree, given_values: dict[str, Any], rank: int = -1) -> str:
    """With as few parentheses as the ranks allow, so that the ranks are tested; half of the leaves through templates."""
    kind = tree[0]
    if kind in ("number", "text", "truth"):
        if len(given_values) % 2 and kind != "truth":
            name = f"v{len(given_values)}"
            given_values[name] = tree[1]
            return f"{{{{{name}}}}}" if kind == "number" else f"'{{{{{name}}}}}'"
        given_values[f"v{len(given_values)}"] = None
        if kind == "text":
            return f"'{str(tree[1]).replace(chr(39), chr(92) + chr(39))}'"
        return str(tree[1]).lower()
    if kind in ("neg", "not"):
        return ("-" if kind == "neg" else "!") + printed(tree[1], given_values, 9)
    own = RANK[kind]
    if kind == "choice":
        parts = [printed(each, given_values, 0) for each in tree[1:]]
        text = f"{parts[0]} ? {parts[1]} : {parts[2]}"
    elif kind == "in":
        left = printed(tree[1], given_values, own)
        text = f"{left} in ({', '.join(printed(each, given_values) for each in tree[2])})"
    else:
        text = f"{printed(tree[1], given_values, own - 1)} {kind} {printed(tree[2], given_values, own)}"
    return f"({text})" if own <= rank else text


@settings(max_examples=150)
@given(_truths())
def test_the_same_answer_as_a_naive_evaluator(tree: Tree) -> None:
    values: dict[str, Any] = {}
    condition = printed(tree, values)
    assert evaluate(condition, lambda reference: values[reference.name]) is bool(computed(tree)), condition


@settings(max_examples=150)
@given(st.text(max_size=60))
def test_any_text_is_answered_or_refused(text: str) -> None:
    with suppress(Invalid):
        assert evaluate(text, lambda reference: reference.name) in (True, False)


@settings(max_examples=80)
@given(st.text(max_size=40))
def test_a_value_is_only_ever_a_value(value: str) -> None:
    """Whatever a value holds, it equals itself and never becomes part of the expression."""
    assert evaluate("{{x}} == {{x}}", lambda _: value)
    assert evaluate("{{x}} != {{x}} || true", lambda _: value)


# ---- patterns ------------------------------------------------------------------------------------------------------

ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "[a-c1]", r"\d", r"\w", r"\s", r"\D", r"\b", "^", "$", "(a|b)", "(?:ab|c|)", r"\."]
)
AMOUNTS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "+?"])
PATTERNS = st.lists(st.tuples(ATOMS, AMOUNTS).map("".join), min_size=1, max_size=5).map("".join)


@settings(max_examples=150)
@given(PATTERNS, st.text("abc1_ .\n", max_size=8), st.booleans())
def test_patterns_find_what_the_standard_library_finds(pattern: str, text: str, fold: bool) -> None:
    try:
        expected = re.search(pattern.replace("$", r"\Z"), text, re.IGNORECASE if fold else 0) is not None
    except re.error:
        return  # it refuses to repeat a ^
    assert search(("(?i)" if fold else "") + pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "a ( without )"), ("a)", "a ) without ("), ("[a", "ends too early"), ("*", "nothing to repeat before *"),
        ("a{3,2}", "at least more than at most"), (r"\p", r"\p is not known"), ("(?=a)", "(?= are not known"), ("[b-a]", "b-a goes backwards"),
        ("((a{50}){50}){50}", "larger than 500 states"), ("(" * 60 + ")" * 60, "nested more than 50 deep"), ("\\", "ends too early"),
    ],
)  # fmt: skip
def test_what_is_no_pattern(pattern: str, message: str) -> None:
    with pytest.raises(NotAPattern, match=re.escape(message)):
        search(pattern, "a")


def test_a_pattern_that_backtracks_for_ever_elsewhere() -> None:
    assert not search("(a+)+$", "a" * 4000 + "b")


def test_a_long_text_is_not_searched() -> None:
    with pytest.raises(NotAPattern, match="5,000 characters"):
        search("a", "a" * 5000)
