"""The pages of the documentation site: site.py DOCS CONFIG, and site.py --check SITE

The first call lays the Markdown of the repository out in DOCS, adds the references that are generated from the code, and
writes the configuration for Zensical. The second one follows every link of the built pages and names those that lead nowhere; it also
names what a page would load from another host, since the site must be complete without a network.
Called by ``scripts/docs``.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import re
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import paddleflow
from paddleflow.api import openapi
from paddleflow.api.routing import Route

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/PaddlePaddle/PaddleFlow"
#: Pages of the repository that stand outside of docs/, by their place in the site.
OUTSIDE = {"ARCHITECTURE.md": "internals/architecture.md", "CONTRIBUTING.md": "internals/contributing.md"}
SECTIONS = {
    "Tutorial": "tutorial",
    "Tasks": "tasks",
    "Guides": "guides",
    "Reference": "reference",
    "Internals": "internals",
    "Decisions": "decisions",
}
PLACED = {".md", ".svg", ".png"}
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")


# ---- pages ---------------------------------------------------------------------------------------------------------


def lay_out(target: Path) -> None:
    """All pages and pictures in `target`, with links that hold there."""
    shutil.rmtree(target, ignore_errors=True)
    docs = ROOT / "docs"
    for file in sorted(docs.rglob("*")):
        if file.is_file() and file.suffix in PLACED:
            _place(file, target / file.relative_to(docs), target)
    for name, place in OUTSIDE.items():
        _place(ROOT / name, target / place, target)
    (target / "reference" / "rest.md").write_text(rest_page(), "utf-8")
    (target / "reference" / "python.md").write_text(python_page(), "utf-8")
    (target / "reference" / "openapi.json").write_text(json.dumps(description(), indent=1), "utf-8")


def _place(file: Path, place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix != ".md":
        shutil.copyfile(file, place)
        return

    def moved(match: re.Match[str]) -> str:
        return match[1] + _moved(match[2], file, place, target) + match[3]

    place.write_text(_LINK.sub(moved, file.read_text("utf-8")), "utf-8")


def _moved(link: str, file: Path, place: Path, target: Path) -> str:
    """A relative link as it must be written at its page's place in the site."""
    path, mark, anchor = link.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return link
    goal = (file.parent / path).resolve()
    inside = goal.relative_to(ROOT).as_posix()
    if inside in OUTSIDE:
        there = target / OUTSIDE[inside]
    elif goal.is_relative_to(ROOT / "docs") and goal.suffix in PLACED:
        there = target / goal.relative_to(ROOT / "docs")
    else:
        return f"{REPOSITORY}/{'tree' if goal.is_dir() else 'blob'}/main/{inside}{mark}{anchor}"
    return Path(os.path.relpath(there, place.parent)).as_posix() + mark + anchor


def title(page: Path) -> str:
    """The first heading, or the name of the file."""
    found = re.search(r"^# (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return found[1].replace("`", "") if found else page.stem


def configuration(docs: Path, site: Path) -> str:
    """What Zensical reads, in TOML."""
    nav: list[dict[str, Any]] = [{"Home": "index.md"}]
    for name, folder in SECTIONS.items():
        pages = [page for page in sorted((docs / folder).glob("*.md")) if page.name != "0000-template.md"]
        pages.sort(key=lambda page: (page.name != "index.md", page.name))
        nav.append({name: [{title(page): page.relative_to(docs).as_posix()} for page in pages]})
    nav.append({"Benchmarks": "benchmarks.md"})
    return f"""\
[project]
site_name = "PaddleFlow"
site_description = "An open platform for AI jobs, from a laptop to Kubernetes."
repo_url = "{REPOSITORY}"
docs_dir = "{docs.name}"
site_dir = "{site.name}"
nav = {_toml(nav)}

[project.theme]
font = false
features = ["navigation.sections", "navigation.top", "navigation.tracking", "search.highlight", "content.code.copy", "toc.follow"]

[[project.theme.palette]]
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Switch to dark mode"

[[project.theme.palette]]
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Switch to light mode"

[project.markdown_extensions.admonition]
[project.markdown_extensions.tables]
[project.markdown_extensions.attr_list]
[project.markdown_extensions.toc]
permalink = true
[project.markdown_extensions.pymdownx.highlight]
[project.markdown_extensions.pymdownx.superfences]
"""


def _toml(value: object) -> str:
    """Lists, tables and text as TOML writes them on one line."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


# ---- references ----------------------------------------------------------------------------------------------------


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        if not found.ispkg:
            yield importlib.import_module(f"{package.__name__}.{found.name}")


def description() -> dict[str, Any]:
    """The OpenAPI description of all routes."""
    package = importlib.import_module("paddleflow.api")
    tables = [vars(module).get("ROUTES", ()) for module in modules(package)]
    return openapi.describe([route for table in tables for route in table if isinstance(route, Route)])


def rest_page() -> str:
    """Every route with its parameters, body and refusals."""
    found = description()
    parts = [
        "# REST API",
        "Written from the routes themselves; the machine-readable form is [openapi.json](openapi.json).",
    ]
    for path, operations in sorted(found["paths"].items()):
        for method, operation in operations.items():
            parts += [f"## {method.upper()} {path}", operation.get("summary", "") + "."]
            if text := operation.get("description"):
                parts.append(text)
            rows = [
                f"| `{each['name']}` | {each['in']} | {'yes' if each.get('required') else ''} | {_cell(each.get('description', ''))} |"
                for each in operation.get("parameters", ())
            ]
            if rows:
                parts.append("\n".join(["| parameter | in | required | meaning |", "|---|---|---|---|", *rows]))
            if body := operation.get("requestBody"):
                parts += _body(next(iter(body["content"].values())).get("schema", {}), found["components"]["schemas"])
            answers = [
                f"| {status} | {_cell(each['description'])} |" for status, each in operation["responses"].items()
            ]
            parts.append("\n".join(["| status | meaning |", "|---|---|", *answers]))
    return "\n\n".join(parts) + "\n"


def _body(schema: dict[str, Any], components: dict[str, Any]) -> list[str]:
    name = schema.get("$ref", "").rsplit("/", 1)[-1]
    fields = components.get(name, schema).get("properties", {})
    required = set(components.get(name, schema).get("required", ()))
    if not fields:
        return []
    rows = [
        f"| `{field}` | {_type(each)} | {'yes' if field in required else ''} | {_cell(each.get('description', ''))} |"
        for field, each in fields.items()
    ]
    return ["\n".join(["| body field | type | required | meaning |", "|---|---|---|---|", *rows])]


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[-1])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"] if each.get("type") != "null"))
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def python_page() -> str:
    """The public classes and functions of the client library and of the pipeline DSL."""
    parts = ["# Python API", "Written from the docstrings of `paddleflow.sdk` and `paddleflow.pipeline`."]
    for package in ("paddleflow.sdk", "paddleflow.pipeline"):
        for module in modules(importlib.import_module(package)):
            parts += _module(module)
    return "\n\n".join(parts) + "\n"


def _module(module: ModuleType) -> list[str]:
    members = [
        item
        for name, item in vars(module).items()
        if not name.startswith("_")
        and getattr(item, "__module__", "") == module.__name__
        and (inspect.isclass(item) or inspect.isfunction(item))
        and inspect.getdoc(item)
    ]
    if not members:
        return []
    parts = [f"## {module.__name__}", inspect.getdoc(module) or ""]
    for item in members:
        parts += [
            f"### {item.__name__}",
            f"```python\n{item.__name__}{_signature(item)}\n```",
            inspect.getdoc(item) or "",
        ]
        if inspect.isclass(item):
            rows = [
                f"| `{name}{_signature(method)}` | {_cell((inspect.getdoc(method) or '').split(chr(10) * 2)[0])} |"
                for name, method in vars(item).items()
                if not name.startswith("_") and inspect.isfunction(method) and inspect.getdoc(method)
            ]
            if rows:
                parts.append("\n".join(["| method | what it does |", "|---|---|", *rows]))
    return parts


def _signature(item: object) -> str:
    try:
        text = str(inspect.signature(item)) if callable(item) else ""
    except ValueError:
        return "(…)"
    return re.sub(r"\(self,? ?", "(", text).replace("|", "\\|")


# ---- links ---------------------------------------------------------------------------------------------------------


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []  #: from other hosts; a reader may be offline

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        source = given.get("href") if given.get("rel") in {"stylesheet", "preconnect", "preload"} else given.get("src")
        if source and urlsplit(source).netloc:
            self.loaded.append(source)
        for name, value in attributes:
            if name in {"href", "src"} and value:
                self.targets.append(value)
            elif name in {"id", "name"} and value:
                self.anchors.add(value)


def broken_links(site: Path) -> list[str]:
    """Links inside the site that lead to no page, file or heading, and what pages load from other hosts."""
    pages: dict[Path, _Links] = {}
    for page in sorted(site.rglob("*.html")):
        pages[page] = _Links()
        pages[page].feed(page.read_text("utf-8"))
    faults = []
    for page, links in pages.items():
        faults += [f"{page.relative_to(site)}: loads {source} from another host" for source in links.loaded]
        if page.name == "404.html":
            continue
        for link in links.targets:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            goal = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            goal = goal / "index.html" if goal.is_dir() else goal
            if not goal.exists():
                faults.append(f"{page.relative_to(site)}: {link} does not exist")
            elif parts.fragment and goal in pages and unquote(parts.fragment) not in pages[goal].anchors:
                faults.append(f"{page.relative_to(site)}: {link}: no such heading")
    return faults


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--check"]:
        faults = broken_links(Path(arguments[1]).resolve())
        sys.stderr.write("".join(f"{fault}\n" for fault in faults))
        return 1 if faults else 0
    docs, config = Path(arguments[0]), Path(arguments[1])
    lay_out(docs.resolve())
    config.write_text(configuration(docs, docs.parent / "site"), "utf-8")
    sys.stderr.write(f"laid out the pages of version {paddleflow.__version__}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
