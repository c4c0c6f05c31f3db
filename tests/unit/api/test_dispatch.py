"""The table of paths: static segments win, encoded slashes stay inside, and it agrees with a plain reading of the rule."""

from __future__ import annotations

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.api.dispatch import Table

_SEGMENT = st.sampled_from(["a", "b", "{x}", "{y}"])
_PATHS = st.lists(st.lists(_SEGMENT, min_size=1, max_size=4).map(tuple), max_size=12)


def _shape(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("{}" if segment.startswith("{") else segment for segment in path)


@given(_PATHS, st.lists(st.sampled_from(["a", "b", "c", "a/b", "ä"]), min_size=1, max_size=4))
def test_agrees_with_the_rule(paths: list[tuple[str, ...]], asked: list[str]) -> None:
    unique = {_shape(path): path for path in paths}
    table: Table[tuple[str, ...]] = Table(("GET", "/" + "/".join(path), path) for path in unique.values())
    raw = "/" + "/".join(quote(segment, safe="") for segment in asked)
    found = table.find("GET", "/" + "/".join(asked), raw.encode())

    def fits(path: tuple[str, ...]) -> bool:
        return len(path) == len(asked) and all(
            part.startswith("{") or part == given for part, given in zip(path, asked, strict=True)
        )

    fitting = sorted((path for path in unique.values() if fits(path)), key=_shape_order)
    if not fitting:
        assert found is None
        assert table.allowed("/" + "/".join(asked), raw.encode()) == []
        return
    assert found is not None
    entry, values = found
    assert entry == fitting[0]
    expected = {part[1:-1]: given for part, given in zip(entry, asked, strict=True) if part.startswith("{")}
    assert dict(values) == expected
    assert table.allowed("/" + "/".join(asked), raw.encode()) == ["GET"]


def _shape_order(path: tuple[str, ...]) -> tuple[bool, ...]:
    """Static first, segment by segment from the left."""
    return tuple(segment.startswith("{") for segment in path)


def test_methods_are_told_apart() -> None:
    table = Table([("GET", "/a/{x}", 1), ("PUT", "/a/{x}", 2), ("GET", "/a/fixed", 3)])
    assert table.find("PUT", "/a/fixed", b"/a/fixed") == (2, {"x": "fixed"})
    assert table.find("GET", "/a/fixed", b"/a/fixed") == (3, {})
    assert table.find("POST", "/a/fixed", b"/a/fixed") is None
    assert table.allowed("/a/fixed", b"/a/fixed") == ["GET", "PUT"]
    assert table.find("GET", "/a/", b"/a/") is None
