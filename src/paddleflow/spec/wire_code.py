"""Answers about code snapshots, as they are on the wire."""

from __future__ import annotations

from typing import TypedDict


class MissingChunks(TypedDict):
    """What to send before the snapshot can be kept."""

    id: str  #: of the snapshot, once it is kept
    missing: list[str]


class StoredChunks(TypedDict):
    """How many chunks of an upload were kept."""

    stored: int


class CodeSnapshot(TypedDict):
    """A snapshot that is kept."""

    id: str
    files: int
    size: int
