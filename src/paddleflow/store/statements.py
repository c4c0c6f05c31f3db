"""SQL as a language of the project: statements live in ``.sql`` files beside their package, each with a name and a sentence.

A file is a list of blocks::

    -- name: job_by_id
    -- One job, whoever owns it.
    select * from jobs where id = :id

Parameters are written ``:name``. ``json_each(:rows)`` gives the column ``value`` of each item of a JSON list,
on both engines; an item that is a list itself is read by ``value ->> 0``. So many rows are one statement, without a word
of Python between them. A block whose name carries a dialect (``-- name: claim [postgres]``) is used for that
dialect instead of the plain one. ``$NAME`` stands for one of `FRAGMENTS`, what several packages must spell alike. `load` refuses a block without a name or sentence, and two of one name.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final

from paddleflow.base.values import dataclass

#: Status lists of jobs, which jobs, queues, access and storage ask for. The index of active jobs (migration 0005) has the
#: same words, so that both engines use it.
FRAGMENTS: Final = {
    "ACTIVE": "('init', 'pending', 'running', 'terminating', 'preempting')",
    "WAITING": "('init', 'pending')",
}
_FRAGMENT = re.compile(r"\$([A-Z]+)\b")
_HEAD = re.compile(r"^-- name: (?P<name>[a-z][a-z0-9_]*)(?: \[(?P<dialect>sqlite|postgres)\])?$")
#: a parameter, but neither a cast (::int) nor anything inside quotes
_PARAM = re.compile(r"'(?:[^']|'')*'|::|:(?P<name>[a-z_][a-z0-9_]*)")
_EACH = re.compile(r"\bjson_each\((:[a-z_]+)\)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement, in the spelling of each driver."""

    name: str
    sentence: str
    sqlite: str  #: with :name parameters
    postgres: str  #: with %(name)s parameters


@cache
def load(package: str, file: str) -> dict[str, Statement]:
    """All statements of a file that lies in `package`, by name."""
    return parse(file, (resources.files(package) / file).read_text("utf-8"))


def parse(file: str, text: str) -> dict[str, Statement]:
    """All statements of a text; `file` is its name in messages. ValueError for a block that breaks the rules."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for number, block in _blocks(text):
        head, *rest = block
        match = _HEAD.match(head)
        if match is None:
            raise ValueError(f"{file}:{number}: expected '-- name: some_name', found {head!r}")
        sentence = " ".join(line[2:].strip() for line in rest if line.startswith("--"))
        body = "\n".join(line for line in rest if not line.startswith("--")).strip().rstrip(";")
        if not sentence or not body:
            raise ValueError(f"{file}:{number}: {match['name']} needs a sentence and a statement")
        key = match["name"], match["dialect"] or ""
        if key in found:
            raise ValueError(f"{file}:{number}: {match['name']} is there twice")
        found[key] = sentence, _with_fragments(body, f"{file}:{number}")
    statements = {}
    for name in dict.fromkeys(name for name, _ in found):
        plain = found.get((name, "")) or found.get((name, "sqlite")) or found[(name, "postgres")]
        sqlite = found.get((name, "sqlite"), plain)[1]
        postgres = found.get((name, "postgres"), plain)[1]
        statements[name] = Statement(name, plain[0], sqlite, _pyformat(postgres))
    return statements


def _with_fragments(sql: str, where: str) -> str:
    def spelled(match: re.Match[str]) -> str:
        if match[1] not in FRAGMENTS:
            raise ValueError(f"{where}: ${match[1]} is not a fragment, there are {', '.join(FRAGMENTS)}")
        return FRAGMENTS[match[1]]

    return _FRAGMENT.sub(spelled, sql)


@cache
def compose(sql: str) -> Statement:
    """A statement put together from fixed fragments, for lists with optional filters. Never from what a client sent."""
    return Statement("composed", "put together from fragments", sql, _pyformat(sql))


def _blocks(text: str) -> list[tuple[int, list[str]]]:
    blocks: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("-- name:"):
            blocks.append((number, [line.rstrip()]))
        elif blocks and line.strip():
            blocks[-1][1].append(line.rstrip())
    return blocks


def _pyformat(sql: str) -> str:
    def spelled(match: re.Match[str]) -> str:
        return f"%({match['name']})s" if match["name"] else match[0]

    each = _EACH.sub(r"json_array_elements(cast(\1 as json))", sql)
    return _PARAM.sub(spelled, each.replace("%", "%%"))
