"""The habits of CONTRIBUTING.md that no linter knows: sizes, names, docstrings, documented settings and columns, links.

Reads the tree and imports next to nothing, so that it takes a second and works while a package is being built.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from paddleflow import settings
from paddleflow.store.migrations import packaged
from paddleflow.store.statements import Statement, load

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "paddleflow"
FOLDERS = ("src", "tests", "benchmarks", "docs", "scripts", "examples", "changes", "requirements", "deploy", ".ci")

MODULE_LINES, FUNCTION_LINES, DECISION_LINES = 700, 60, 60
REFUSED_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "manager", "managers", "service", "services"}
NO_COLUMNS = {"primary", "unique", "foreign", "check", "constraint", "--"}  #: first words of a table's other lines
PROTOCOLS = ("Clock", "Database", "Bus", "Runtime", "ObjectStore")


def files(*patterns: str) -> Iterator[Path]:
    """Files of the repository that people wrote."""
    for folder in FOLDERS:
        for pattern in patterns:
            for file in sorted((ROOT / folder).rglob(pattern)):
                if file.is_file() and not any(part in {"__pycache__", "node_modules"} for part in file.parts):
                    yield file
    for pattern in patterns:
        # In a further work tree `.git` is a file, and not one that people wrote.
        yield from (file for file in sorted(ROOT.glob(pattern)) if file.is_file() and file.name != ".git")


def shown(file: Path) -> str:
    return str(file.relative_to(ROOT))


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"), str(file))


def python() -> list[Path]:
    return list(files("*.py"))


def source() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def documents() -> list[Path]:
    return list(files("*.md"))


def refuse(faults: list[str]) -> None:
    assert not faults, "\n" + "\n".join(faults)


# ---- the code ------------------------------------------------------------------------------------------------------


def test_modules_fit_in_a_head() -> None:
    refuse(
        [
            f"{shown(file)}: {lines} lines, at most {MODULE_LINES}"
            for file in python()
            if (lines := len(file.read_text("utf-8").splitlines())) > MODULE_LINES
        ]
    )


def test_functions_fit_on_a_screen() -> None:
    refuse(
        [
            f"{shown(file)}:{node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES}"
            for file in python()
            for node in ast.walk(tree(file))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
        ]
    )


def test_names_say_what_a_thing_is() -> None:
    refuse(
        [
            f"{shown(file)}: {word!r} says nothing about what is inside"
            for file in python()
            for part in file.relative_to(ROOT).with_suffix("").parts
            for word in re.split(r"[_-]", part.lower())
            if word in REFUSED_NAMES
        ]
    )


def test_every_module_says_why_it_exists() -> None:
    refuse(
        [
            f"{shown(file)}: no docstring"
            for file in python()
            if "examples" not in file.parts and not (ast.get_docstring(tree(file)) or "").strip()
        ]
    )


def test_every_folder_is_a_package() -> None:
    folders = {file.parent for file in source()}
    refuse([f"{shown(folder)}: no __init__.py" for folder in sorted(folders) if not (folder / "__init__.py").exists()])


def test_only_the_settings_read_the_environment() -> None:
    refuse(
        [
            f"{shown(file)}:{node.lineno}: reads the environment"
            for file in source()
            if file not in (SOURCE / "settings.py", SOURCE / "environment.py")
            for node in ast.walk(tree(file))
            if (isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"})
            or (
                isinstance(node, ast.ImportFrom)
                and node.module == "os"
                and {a.name for a in node.names} & {"environ", "getenv"}
            )
        ]
    )


def test_tasks_live_in_task_groups() -> None:
    refuse(
        [
            f"{shown(file)}:{node.lineno}: a task that nobody owns; use a TaskGroup"
            for file in source()
            for node in ast.walk(tree(file))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"create_task", "ensure_future"}
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in {"asyncio", "loop"}
        ]
    )


def test_imports_stand_at_the_top() -> None:
    """An import may wait only where start-up time counts (the command line, the package itself, factories of a server) and for an extra."""
    names = ("__init__.py", "store/connection.py", "store/encryption.py", "server/main.py", "objects/urls.py")
    late = {SOURCE / name for name in names}
    refuse(
        [
            f"{shown(file)}:{inner.lineno}: import inside {node.name}"
            for file in source()
            if file not in late and file.relative_to(SOURCE).parts[0] != "cli"
            for node in ast.walk(tree(file))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for inner in ast.walk(node)
            if isinstance(inner, ast.Import | ast.ImportFrom)
        ]
    )


def test_nothing_is_left_for_later() -> None:
    word = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    refuse(
        [
            f"{shown(file)}:{number}: {line.strip()}"
            for file in files("*.py", "*.sql", "*.sh")
            for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
            if word.search(line)
        ]
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_has_a_conformance_suite(protocol: str) -> None:
    defined = [
        file
        for file in source()
        for node in tree(file).body
        if isinstance(node, ast.ClassDef)
        and node.name == protocol
        and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    ]
    assert len(defined) == 1, f"{protocol} is defined {len(defined)} times in src"
    suite = ROOT / "tests" / "contract" / f"test_{protocol.lower()}.py"
    assert suite.exists(), f"{shown(suite)} is missing: {protocol} promises things that nobody checks"
    assert any(
        node.name.startswith("test_")
        for node in ast.walk(tree(suite))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_each_setting_has_a_sentence() -> None:
    refuse(
        [
            f"{name}: {sentence!r} is not a sentence"
            for name, _, _, sentence in settings.describe()
            if len(sentence) < 10 or not sentence.endswith(".")
        ]
    )


@pytest.mark.parametrize("writer", ["scripts/lib/reference.py", "scripts/lib/manifests.py", "docs/generate.py"])
def test_generated_pages_are_up_to_date(writer: str) -> None:
    done = subprocess.run([sys.executable, ROOT / writer, "--check"], check=False)
    assert done.returncode == 0, f"a page of docs/reference is not what {writer} would write; run scripts/check --fix"


def test_definitions_to_apply_and_delete_are_our_own() -> None:
    """`kubectl delete -f deploy/crds` is how the operator is uninstalled: Volcano's kinds, and their objects, must stay."""
    found = [each for file in (ROOT / "deploy" / "crds").iterdir() for each in yaml.safe_load_all(file.read_text())]
    assert [each["spec"]["group"] for each in found] == ["batch.paddlepaddle.org"]


def in_signature(node: ast.FunctionDef, name: str) -> bool:
    annotations = [*(each.annotation for each in node.args.args), node.returns]
    named = (part for each in annotations if each is not None for part in ast.walk(each))
    return any(isinstance(part, ast.Name) and part.id == name for part in named)


def test_rows_leave_their_package_as_typed_values() -> None:
    """What takes or gives a `Row` of the database is called in the package that owns the table, and nowhere else."""
    importers: dict[str, set[str]] = {}
    for file in source():
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    importers.setdefault(f"{node.module}.{alias.name}", set()).add(file.relative_to(SOURCE).parts[0])
    faults = []
    for file in source():
        package, module = (
            file.relative_to(SOURCE).parts[0],
            ".".join(file.relative_to(ROOT / "src").with_suffix("").parts),
        )
        if package == "store" or "store.database import" not in file.read_text("utf-8"):
            continue
        for node in tree(file).body:
            others = importers.get(f"{module}.{getattr(node, 'name', '')}", set()) - {package}
            if isinstance(node, ast.FunctionDef) and in_signature(node, "Row") and others:
                faults.append(
                    f"{shown(file)}:{node.lineno}: {node.name} hands a Row to or from {', '.join(sorted(others))}"
                )
    refuse(faults)


# ---- the vocabulary ------------------------------------------------------------------------------------------------

#: Words that older code had and nobody else has (docs/internals/vocabulary.md). A name of ours holds none of them …
PRIVATE_WORDS = {
    "told", "hear", "heard", "heir", "heirs", "brisk", "custody", "bury", "buried", "surroundings", "stray", "strays", "crowd",
    "crowds", "thinker", "workplace", "entrance", "errand", "errands", "conductor", "door", "hop", "house", "welcome", "look", "mover",
}  # fmt: skip
#: … but in these modules, which are still to be renamed. The list may only get shorter.
STILL_PRIVATE: set[str] = set()
#: Nouns of the field that end in -ing.
NOUNS_IN_ING = {"scheduling", "paging", "routing", "housekeeping", "training", "string"}


def names_given(file: Path) -> Iterator[tuple[int, str]]:
    """(line, name) of everything that a file names."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def test_names_are_words_of_the_field() -> None:
    faults = []
    for file in source():
        if str(file.relative_to(SOURCE)) not in STILL_PRIVATE:
            for line, name in names_given(file):
                words = re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower().replace("look_up", "lookup"))
                faults += [
                    f"{shown(file)}:{line}: {name}: {word!r} is a private word"
                    for word in words
                    if word in PRIVATE_WORDS
                ]
    refuse(faults)


def test_modules_are_nouns() -> None:
    refuse(
        [
            f"{shown(file)}: a module is a noun, not a gerund"
            for file in source()
            if file.stem.rpartition("_")[2].endswith("ing") and file.stem.rpartition("_")[2] not in NOUNS_IN_ING
        ]
    )


# ---- code without a caller -----------------------------------------------------------------------------------------

#: Decorators that leave a function one that somebody must name. Others (a command, a validator) register it.
PLAIN_DECORATORS = {
    "property", "cached_property", "staticmethod", "classmethod", "cache", "lru_cache", "contextmanager", "asynccontextmanager",
    "dataclass", "wraps",
}  # fmt: skip
OWN_BASES = {"Protocol", "Generic", "Enum", "StrEnum", "object"}  #: bases that call none of a class's own methods
#: Packages whose callers are tests.
CALLED_FROM_OUTSIDE = {SOURCE / "testing"}
#: What no code of ours names, and why it is there all the same.
NAMED_BY_OTHERS = {
    "ManualClock": "the clock of tests, which passes the suite of `Clock`",
    "add_env": "of the pipeline DSL, called by users", "set_post_process": "of the pipeline DSL, called by users",
    "paddleflow_step": "its source travels into the step",
    "create_json": "of the SDK, called by users",
    "on_header": "httptools calls it", "on_body": "httptools calls it",
    "on_message_complete": "httptools calls it",
    "format_commands": "click calls it",
    "to_document": "of `spec.pipeline`, for tools that write pipelines",
    "JobEvent": "documents the events of a stream in the reference",
}  # fmt: skip


def decorator_name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def names_used(file: Path) -> Iterator[str]:
    """Every name that a file mentions but by defining or importing it; also inside short strings, for late look-ups."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.:]+", node.value):
            yield from re.split(r"[.:]", node.value)
        elif isinstance(node, ast.ImportFrom):  # a name that stays is counted where it is read
            yield from (alias.name for alias in node.names if alias.asname or file.name == "__init__.py")


def definitions() -> Iterator[tuple[str, str]]:
    """(where, name) of constants, functions, classes and methods that must be named somewhere."""
    own = {
        node.name for file in source() for node in ast.walk(tree(file)) if isinstance(node, ast.ClassDef)
    } | OWN_BASES
    for file in source():
        if CALLED_FROM_OUTSIDE & set(file.parents):
            continue
        for node in tree(file).body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
                yield from ((f"{shown(file)}:{node.lineno}", name) for name in names if not name.startswith("__"))
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            members: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = [node]
            # What overrides a method of a foreign class is called by foreign code.
            if isinstance(node, ast.ClassDef) and {decorator_name(base) for base in node.bases} <= own:
                members += [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            for each in members:
                plain = all(decorator_name(decorator) in PLAIN_DECORATORS for decorator in each.decorator_list)
                if plain and not (each.name.startswith("__") and each.name.endswith("__")):
                    yield f"{shown(file)}:{each.lineno}", each.name


def test_everything_has_a_caller() -> None:
    callers = [*source(), *sorted((ROOT / "benchmarks").rglob("*.py")), *sorted((ROOT / "scripts").rglob("*.py"))]
    used = {name for file in callers for name in names_used(file)}
    unnamed = {where: name for where, name in definitions() if name not in used}
    stale = NAMED_BY_OTHERS.keys() - unnamed.values()
    refuse(
        [
            *(
                f"{where}: {name} is named nowhere in src, benchmarks and scripts"
                for where, name in unnamed.items()
                if name not in NAMED_BY_OTHERS
            ),
            *(f"NAMED_BY_OTHERS: {name} needs no exception" for name in sorted(stale)),
        ]
    )


# ---- the SQL -------------------------------------------------------------------------------------------------------


def statements() -> Iterator[tuple[Path, Statement]]:
    for file in sorted(SOURCE.rglob("*.sql")):
        if file.parent.name != "migrations":
            package = ".".join(file.parent.relative_to(SOURCE.parent).parts)
            yield from ((file, statement) for statement in load(package, file.name).values())


def test_each_statement_has_a_name_and_a_sentence() -> None:
    found = list(statements())  # load refuses a block without either
    assert found
    refuse(
        [f"{shown(file)}: {each.name}: {each.sentence!r}" for file, each in found if not each.sentence.endswith(".")]
    )


def test_each_statement_is_used() -> None:
    used = {
        node.value
        for file in source()
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    refuse([f"{shown(file)}: {each.name} is used nowhere" for file, each in statements() if each.name not in used])


def test_each_table_and_column_says_its_meaning() -> None:
    faults = []
    for migration in packaged():
        where = f"{migration.number:04}_{migration.name}.sql"
        before, table = "", ""
        for number, line in enumerate(migration.text.splitlines(), 1):
            words = line.split()
            if match := re.match(r"create table (?:if not exists )?(\w+)", line):
                table = match[1]
                if not before.startswith("--"):
                    faults.append(f"{where}:{number}: table {table} has no comment above it")
            elif line.startswith(")"):
                table = ""
            elif table and words and words[0] not in NO_COLUMNS and not re.search(r"--\s*\S", line):
                faults.append(f"{where}:{number}: {table}.{words[0]} does not say its meaning")
            before = line.strip() or before
    refuse(faults)


# ---- the words -----------------------------------------------------------------------------------------------------


def anchors(file: Path) -> set[str]:
    """What a link may name after '#', as code hosting sites make it of the headings."""
    headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    faults = []
    for file in documents():
        text = re.sub(r"```.*?```|`[^`\n]*`", "", file.read_text("utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            goal = (file.parent / path).resolve() if path else file
            if not goal.exists():
                faults.append(f"{shown(file)}: {target} does not exist")
            elif anchor and goal.suffix == ".md" and anchor not in anchors(goal):
                faults.append(f"{shown(file)}: {target}: no such heading")
    refuse(faults)


def test_architecture_names_what_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)*/?(?:\.(?:py|md))?)`", text))
    paths = {name for name in named if "/" in name or name.endswith(".py")}
    refuse(
        [f"{path} is not there" for path in sorted(paths) if not any((root / path).exists() for root in (ROOT, SOURCE))]
    )


def test_internals_name_modules_that_are_there() -> None:
    there = [f"/{shown(file)}" for file in python()]
    refuse(
        [
            f"{shown(page)}: {name} is not there"
            for page in sorted((ROOT / "docs" / "internals").glob("*.md"))
            for name in sorted(set(re.findall(r"`([\w/]+\.py)`", page.read_text("utf-8"))))
            if not any(path.endswith(f"/{name}") for path in there)
        ]
    )


def walk(title: str) -> tuple[str, dict[int, str]]:
    """A walk of ARCHITECTURE.md: its text, and by the number of the step what is to be opened."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition(f"## {title}")[2].partition("\n## ")[0]
    return text, {int(row[0]): row[1] for row in re.findall(r"^\| (\d+) \|.*\| (.*) \|$", text, re.MULTILINE)}


@pytest.mark.parametrize(("title", "most"), [("The walk of a job", 30), ("The walk of a run", 35)])
def test_walks_count_their_modules(title: str, most: int) -> None:
    """What a newcomer must open for a walk stays few, and is what the page says. A step may be several of the job's."""
    text, steps = walk(title)
    _, steps_of_job = walk("The walk of a job")
    [said] = re.findall(r"^(\d+) modules", text, re.MULTILINE)
    opened = " ".join(steps.values())
    for first, last in re.findall(r"(\d+) to (\d+) above", opened):
        opened += " ".join(steps_of_job[step] for step in range(int(first), int(last) + 1))
    modules = set(re.findall(r"`([a-z_/]+\.py)`", opened))
    assert len(modules) == int(said) <= most, sorted(modules)


@pytest.mark.parametrize("name", ["docs/internals/limits.md", "docs/guides/security.md"])
def test_each_limit_names_a_test_that_is_there(name: str) -> None:
    """What only a benchmark or nobody holds is a wish. `the same` is the cell above; what forbids nothing needs no test."""
    faults, tables, cell = [], 0, ""
    for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1):
        *cells, last = [each.strip() for each in line.strip("|").split("|")] if line.startswith("|") else [""]
        if not cells or last in {"test", "verified by"}:
            tables, cell = tables + bool(cells), last
        elif cell and cells[-1] != "–" and not set(line) <= set("|-"):
            cell = cell if last == "the same" else last
            tests = re.findall(r"`(tests/[^`]+)`", cell)
            modules = [f"src/paddleflow/{file}" for file in re.findall(r"`([a-z_/]+\.py)`", " ".join(cells))]
            gone = [file for file in (*tests, *modules) if not (ROOT / file).exists()]
            if gone or not tests:
                faults.append(f"{name}:{number}: {f'no {gone[0]}' if gone else 'no test'} for {cells[0][:60]!r}")
    assert (bool(tables), faults) == (True, [])


def test_decisions_are_a_page_at_most() -> None:
    found = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert found
    faults = [
        f"{shown(file)}: name it NNNN-title.md" for file in found if not re.match(r"\d{4}-[a-z0-9-]+\.md$", file.name)
    ]
    for file in found:
        text = file.read_text("utf-8")
        if len(text.splitlines()) > DECISION_LINES:
            faults.append(f"{shown(file)}: longer than a page of {DECISION_LINES} lines")
        faults.extend(f"{shown(file)}: no section {part}" for part in ("## Why", "## Way out") if part not in text)
    refuse(faults)


def test_change_fragments_follow_their_form() -> None:
    kinds = {"added", "changed", "fixed", "removed"}
    refuse(
        [
            f"{shown(file)}: name it TITLE.KIND.md, KIND one of {', '.join(sorted(kinds))}"
            for file in sorted((ROOT / "changes").glob("*.md"))
            if file.name != "README.md" and (len(file.name.split(".")) != 3 or file.name.split(".")[1] not in kinds)
        ]
    )


def test_nothing_names_the_machine_it_was_written_on() -> None:
    """No paths of somebody's disk, no package hosts: the repository is the same wherever it is cloned."""
    places = re.compile(
        r"(?<![\w.])/(?:ro" + r"ot|wo" + r"rk|Us" + r"ers)/\w|/ho" + r"me/(?!paddleflow/|you/)\w"
        r"|\b(?:py" + r"pi\.org|python" + r"hosted|registry\.np" + r"mjs|art" + r"ifactory)"
    )  # fmt: skip
    refuse(
        [
            f"{shown(file)}:{number}: {line.strip()[:100]}"
            for file in [*files("*"), ROOT / ".importlinter", ROOT / ".gitignore"]
            if file.suffix not in {".png", ".ico", ".pyc"}
            for number, line in enumerate(file.read_text("utf-8", errors="replace").splitlines(), 1)
            if places.search(line)
        ]
    )
