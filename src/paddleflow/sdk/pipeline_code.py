"""Code of pipeline steps: folders that a document names are sent, and named by their snapshots instead.

Only the text of those values is replaced, so that every other line stays where it is and faults name the author's lines. A folder is
always sent, also to a server on the same machine: a step's cache must know what code it ran.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from paddleflow.errors import Invalid
from paddleflow.sdk.code import Code, git_state
from paddleflow.sdk.transport import Transport

_HOLDERS = ("entry_points", "entryPoints", "components", "post_process", "postProcess")  #: of components by name


def delivered(transport: Transport, document: bytes | str, base: Path) -> bytes | str:
    """The same document; folders of steps are looked up below `base`."""
    text = document.decode("utf-8", "surrogateescape") if isinstance(document, bytes) else document
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return document  # the server says what is wrong with it
    sent: dict[tuple[str, str], str] = {}
    for node, folder, workdir in sorted(_folders(root), key=lambda found: -found[0].start_mark.index):
        if (folder, workdir) not in sent:
            where = (base / folder).resolve()
            if not where.is_dir():
                line = node.start_mark.line + 1
                raise Invalid(f"line {line}: code[{folder}] is not a folder", hint="name one relative to the document")
            found = Code(transport).upload(where)
            extra = {"workdir": workdir, "git": git_state(where)}
            sent[folder, workdir] = json.dumps({**found, **{key: value for key, value in extra.items() if value}})
        behind = text[node.start_mark.index : node.end_mark.index]
        tail = behind[len(behind.rstrip()) :]  # what follows a block belongs to the next line
        text = text[: node.start_mark.index] + sent[folder, workdir] + tail + text[node.end_mark.index :]
    return text.encode("utf-8", "surrogateescape") if isinstance(document, bytes) else text


def _folders(node: yaml.Node | None) -> Iterator[tuple[yaml.Node, str, str]]:
    """Every value of a step's `code` that names a folder, with folder and workdir."""
    for key, value in _entries(node):
        if key not in _HOLDERS:
            continue
        for _, component in _entries(value):
            yield from _folders(component)
            for name, code in _entries(component):
                if name != "code":
                    continue
                if isinstance(code, yaml.ScalarNode) and code.value:
                    yield code, code.value, ""
                else:
                    fields = {inner: each.value for inner, each in _entries(code) if isinstance(each, yaml.ScalarNode)}
                    if fields.get("folder"):
                        yield code, fields["folder"], fields.get("workdir", "")


def _entries(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return []
    return [(key.value, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
