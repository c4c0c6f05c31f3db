"""Manifests of code: what is refused before a file is written."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.errors import Invalid
from paddleflow.spec.code import (
    MOST_BYTES,
    MOST_CHUNK,
    MOST_FILES,
    CodeFile,
    CodeLink,
    Manifest,
    Part,
    pack_chunk,
    read_manifest,
    unpack_chunks,
)

HASH = "ab" * 32


def manifest(*files: list[Any], links: list[list[str]] | None = None) -> dict[str, Any]:
    return {"files": list(files), "links": links or []}


def file(path: str, size: int = 0) -> list[Any]:
    return [path, size, False, [[HASH, 0, size]] if size else []]


def test_a_manifest_is_read_as_it_was_written() -> None:
    written = Manifest(
        (CodeFile("a/b.py", 3, True, (Part(HASH, 1, 3),)), CodeFile("empty", 0, False, ())), (CodeLink("l", "a/b.py"),)
    )
    read = read_manifest(written.to_json())
    assert (read, read.id, read.size, read.chunks) == (written, written.id, 3, {HASH: 4})


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (3, "files and links"),
        (manifest(file("../x")), "must be relative"),
        (manifest(file("/etc/passwd")), "must be relative"),
        (manifest(file("a//b")), "must be relative"),
        (manifest(file("a\0b")), "must be relative"),
        (manifest(file("x" * 300)), "is longer"),
        (manifest(file("a"), file("a")), "is listed twice"),
        (manifest(file("a"), file("a/b")), "which is not a folder"),
        (manifest(file("l/x"), links=[["l", "elsewhere"]]), "which is not a folder"),
        (manifest(links=[["l", "/etc"]]), "leads out"),
        (manifest(links=[["a/l", "../../x"]]), "leads out"),
        (manifest(links=[["a/b/up", "../.."], ["out", "a/b/up/../.."]]), "behind a name"),
        (manifest(links=[["l", "\ud800"]]), "is not UTF-8"),
        (manifest(["a", 5, False, [[HASH, 0, 4]]]), "are not its 5 bytes"),
        (manifest(["a", 5, False, [["short", 0, 5]]]), "are not its 5 bytes"),
        (manifest(["a", 5, False, [[HASH, MOST_CHUNK, 5]]]), "are not its 5 bytes"),
        (manifest(["a", -1, False, []]), "is not [path, size"),
        (manifest(*[[f"f{n}", MOST_CHUNK, False, [[HASH, 0, MOST_CHUNK]]] for n in range(65)]), "in all"),
        (manifest(*[file(f"f{n}") for n in range(MOST_FILES + 1)]), "more than"),
    ],
)
def test_what_could_do_harm_is_refused(document: Any, words: str) -> None:
    assert 65 * MOST_CHUNK > MOST_BYTES
    with pytest.raises(Invalid) as refused:
        read_manifest(document)
    assert words in refused.value.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(JSON, max_size=3), st.lists(JSON, max_size=3))
def test_no_json_breaks_the_reader(files: list[Any], links: list[Any]) -> None:
    try:
        read = read_manifest({"files": files, "links": links})
    except Invalid:
        return
    assert all(not each.path.startswith(("/", "..")) for each in read.files)


def test_chunks_of_an_upload() -> None:
    body = pack_chunk(b"one") + pack_chunk(b"two!")
    assert list(unpack_chunks(body)) == [
        (hashlib.sha256(b"one").hexdigest(), b"one"),
        (hashlib.sha256(b"two!").hexdigest(), b"two!"),
    ]


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b[:-1] + b"x", lambda b: b"x" + b, lambda b: b + b"PF"])
def test_a_spoilt_upload_is_refused(spoil: Any) -> None:
    with pytest.raises(Invalid):
        list(unpack_chunks(spoil(pack_chunk(b"content"))))
