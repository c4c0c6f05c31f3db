"""A store from its URL: the one place that knows which scheme is which class."""

from __future__ import annotations

from urllib.parse import unquote

from paddleflow.base.names import nearest
from paddleflow.errors import Invalid
from paddleflow.objects.local import LocalStore
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.store import ObjectStore, shorten

SCHEMES = ("file", "local", "mock")


def open_store(url: str) -> ObjectStore:
    """The store that a URL names: ``file:///data/team``, ``local:///data/team`` or ``mock://name``."""
    scheme, separator, rest = url.partition("://")
    match scheme.lower() if separator else "":
        case "file" | "local":
            return LocalStore("/" + unquote(rest).lstrip("/"), name=url)
        case "mock":
            return MemoryStore(url)
        case "":
            raise Invalid(f"{shorten(url)} is no URL of a store", hint="write it as file:///data/team")
        case other:
            raise Invalid(f"{shorten(url)}: no store of type {shorten(other)}", hint=nearest(other, SCHEMES))
