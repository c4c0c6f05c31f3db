"""`@step`: a plain Python function as a step.

    @step
    def double(number: int):
        return number * 2

    @step
    def show(value):
        print(value)

    @Pipeline(name="doubled")
    def doubled(number=21):
        show(double(number))

Plain numbers and texts become parameters of the step, so a run may replace them. What a function returns is kept as JSON
in the artifact `result`, or in one artifact per name of `outputs`. Given to another function it arrives as the value;
an artifact of any other step arrives as its path.
"""

from __future__ import annotations

import ast
import base64
import builtins
import dis
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, overload

from paddleflow.base.names import nearest
from paddleflow.base.values import dataclass
from paddleflow.pipeline import step_runner
from paddleflow.pipeline.components import Component, Step, around
from paddleflow.pipeline.names import PF_LOOP_ARGUMENT, SYSTEM, TEMPLATE, refuse
from paddleflow.pipeline.options import CacheOptions, ExtraFS, Retry
from paddleflow.pipeline.values import Artifact, Loop, LoopItem, Parameter

RESULT = "result"
_VARIABLE = "STEP_ARGUMENT_"  #: before the argument's name: the variable that carries a parameter to the function
_KINDS = {"string": "str", "int": "int", "float": "float", "list": "json"}


@dataclass(frozen=True)
class StepOptions:
    """How a function becomes a step."""

    name: str | None = None
    outputs: Sequence[str] | None = None
    python: str = "python3"
    docker_env: str | None = None
    env: Mapping[str, Any] | None = None
    cache_options: CacheOptions | None = None
    condition: str | None = None
    loop_argument: Loop | None = None
    extra_fs: ExtraFS | Sequence[ExtraFS] | None = None
    retry: Retry | int | None = None
    timeout: float | None = None
    code: str | Path | None = None
    requirements: str | Path | Sequence[str] | None = None
    secrets: Sequence[str | Mapping[str, str]] | None = None


class FunctionStep(Step):
    """A step that is a Python function. `step["name"]` is an output, `step.result` the only one."""

    needs_image = False

    def __getitem__(self, name: str) -> Artifact:
        if name not in self.outputs:
            refuse(f"there is no output named [{name}] of {self.label}; {nearest(name, self.outputs)}")
        return self.outputs[name]

    @property
    def result(self) -> Artifact:
        if len(self.outputs) != 1:
            found = ", ".join(self.outputs) or "none, for it returns nothing"
            refuse(f"{self.label} has not one output, say which one is meant: {self.name}[…]; it has {found}")
        return next(iter(self.outputs.values()))


class StepFunction:
    """A decorated function. Calling it makes a step; `.function(…)` is the plain call; `.options(…)` changes how."""

    def __init__(self, function: Callable[..., object], options: StepOptions) -> None:
        self.function = function
        self._options = options
        self._source = source_of(function)
        self._signature = inspect.signature(function)
        self._local_code = local_code(function, self._source)
        for parameter in self._signature.parameters.values():
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
                refuse(f"@step {function.__name__}: argument {parameter} cannot be given by name, and so not to a step")
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def options(self, **changed: Any) -> StepFunction:
        """The same function under other options: name, condition, loop_argument, retry and all the others."""
        made = StepFunction.__new__(StepFunction)
        made.__dict__.update(self.__dict__)
        try:
            made._options = replace(self._options, **changed)
        except TypeError as error:
            refuse(f"@step {self.__name__}: {error}; options are {', '.join(StepOptions.__dataclass_fields__)}")
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> FunctionStep:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            refuse(f"@step {self.__name__}: {error}")
        bound.apply_defaults()
        given = _Arguments(self.function, self.__name__)
        nodes = [[name, given.node(name, value)] for name, value in bound.arguments.items()]
        options = self._options
        outputs = list(options.outputs) if options.outputs is not None else self._returned()
        return FunctionStep(
            options.name or _free(self.__name__.strip("_").replace("_", "-")[:30].rstrip("-")),
            options.docker_env,
            command(self._source, self.__name__, json.dumps(nodes), outputs, options.python),
            given.inputs,
            {name: Artifact() for name in outputs},
            given.parameters,
            {**(options.env or {}), **given.env},
            options.cache_options,
            options.condition,
            options.loop_argument,
            options.extra_fs,
            retry=options.retry,
            timeout=options.timeout,
            code=options.code if options.code is not None else self._local_code,
            requirements=options.requirements,
            secrets=options.secrets,
        )

    def _returned(self) -> list[str]:
        return [RESULT] if returns_value(self._source) else []


class _Arguments:
    """The arguments of one call, taken apart: what goes as parameter, input or variable, and how it is put together."""

    def __init__(self, function: Callable[..., object], name: str) -> None:
        self._annotations = getattr(function, "__annotations__", {})
        self._where = f"@step {name}"
        self.parameters: dict[str, Any] = {}
        self.inputs: dict[str, Artifact] = {}
        self.env: dict[str, Any] = {}

    def node(self, name: str, value: Any) -> list[Any]:
        """How `step_runner` gets the value; `name` is the argument's, with a number for one inside a list."""
        if isinstance(value, FunctionStep):
            value = value.result
        if isinstance(value, Artifact):
            return self._artifact(name, value)
        if isinstance(value, Component):
            refuse(f"{self._where}: argument {name} is {value.label}, give one of its outputs or parameters")
        if isinstance(value, list | tuple) and any(_refers(inner) for inner in value):
            return ["list", [self.node(f"{name}_{number}", inner) for number, inner in enumerate(value)]]
        if isinstance(value, str) and len(value.encode()) > LARGEST:
            refuse(
                f"{self._where}: argument {name} has {len(value.encode())} bytes, it may have {LARGEST}; "
                "keep large values in files and pass them as artifacts"
            )
        if isinstance(value, Parameter | LoopItem) or _is_parameter(value):
            self.parameters[name] = value
            self.env[_VARIABLE + name] = "{{" + name + "}}"
            return ["text", _VARIABLE + name, self._kind(name, value)]
        if isinstance(value, str) and TEMPLATE.search(value):
            self.env[_VARIABLE + name] = value
            return ["text", _VARIABLE + name, self._kind(name, value)]
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            refuse(f"{self._where}: argument {name} is {value!r}, it must be a value that JSON can carry: {error}")
        return ["value", value]

    def _artifact(self, name: str, artifact: Artifact) -> list[Any]:
        self.inputs[name] = artifact
        made_by = artifact if artifact.ref is None else artifact.ref
        content = isinstance(made_by.component, FunctionStep) and self._annotated(name) not in {"Path", "pathlib.Path"}
        variable = f"PF_INPUT_ARTIFACT_{name.upper()}"
        return ["content" if content else "path", variable, _repeated(artifact)]

    def _annotated(self, name: str) -> str:
        found = self._annotations.get(name, "")
        return (found if isinstance(found, str) else getattr(found, "__name__", "")).split("[")[0].strip()

    def _kind(self, name: str, value: Any) -> str:
        annotated = self._annotated(name)
        if annotated in {"int", "float", "str", "bool"}:
            return annotated
        if annotated in {"list", "dict", "List", "Dict"}:
            return "json"
        while isinstance(value, Parameter) and value.ref is not None:
            value = value.ref
        if isinstance(value, Parameter):
            plain = type(value.default).__name__ if value.default is not None else ""
            return _KINDS.get(value.type or "", plain if plain in {"int", "float", "str"} else "json")
        if isinstance(value, str):
            return "json" if value == PF_LOOP_ARGUMENT else "str"
        return type(value).__name__ if type(value) in (int, float) else "json"


def _is_parameter(value: Any) -> bool:
    """A plain value that a parameter carries unchanged. Text with braces in it would be read as a template."""
    if isinstance(value, str):
        return value in SYSTEM or ("{{" not in value and "}}" not in value)
    return type(value) in (int, float)


def _refers(value: Any) -> bool:
    return isinstance(value, FunctionStep | Artifact | Parameter | LoopItem) or (
        isinstance(value, str) and TEMPLATE.search(value) is not None
    )


def _repeated(artifact: Artifact) -> bool:
    """Whether several stand for it: it, or a DAG that it leaves on its way here, is in a loop."""
    here = around()
    outside = set()
    while here is not None:
        outside.add(id(here))
        here = here.parent
    component: Component | None = artifact.component
    while component is not None and id(component) not in outside:
        if component.loop_argument is not None:
            return True
        component = component.parent
    return False


def _free(name: str) -> str:
    """The name, with a number where it is taken here."""
    here = around()
    taken = here.entry_points if here is not None else {}
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name[: 30 - len(str(number)) - 1]}-{number}"
    return found


@overload
def step(function: Callable[..., object], /) -> StepFunction: ...


@overload
def step(
    *,
    name: str | None = None,
    outputs: Sequence[str] | None = None,
    python: str = "python3",
    docker_env: str | None = None,
    env: Mapping[str, Any] | None = None,
    cache_options: CacheOptions | None = None,
    condition: str | None = None,
    loop_argument: Loop | None = None,
    extra_fs: ExtraFS | Sequence[ExtraFS] | None = None,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    code: str | Path | None = None,
    requirements: str | Path | Sequence[str] | None = None,
    secrets: Sequence[str | Mapping[str, str]] | None = None,
) -> Callable[[Callable[..., object]], StepFunction]: ...


def step(function: Callable[..., object] | None = None, /, **options: Any) -> Any:
    """A function as a step: `@step`, or `@step(outputs=["train", "test"], retry=2, …)`.

    `python` is the interpreter that runs it. The function is sent as its source: imports belong inside it. It runs in a
    snapshot of the folder `code`; one that imports a module beside its own file runs in that folder without being told to.
    """
    if function is not None:
        return StepFunction(function, StepOptions())
    chosen = StepOptions(**options)
    return lambda given: StepFunction(given, chosen)


LARGEST = 100_000  #: bytes of a command; the kernel takes 131,072 for one argument
_AT_HOME = frozenset({*dir(builtins), "__name__", "__annotations__"})
_END = "PADDLEFLOW_STEP"
_FUTURE = "from __future__ import annotations\n"


def source_of(function: Callable[..., object]) -> str:
    """The function's own text without its decorator, indented as it stands; refused when it cannot stand alone."""
    where = f"@step {getattr(function, '__qualname__', function)!s}"
    if not isinstance(function, FunctionType):
        refuse(f"{where}: it is a {type(function).__name__}, it must be a function made with def")
    if function.__name__ == "<lambda>":
        refuse(f"{where}: a lambda has no source of its own, write the function with def")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        refuse(f"{where}: it must be a plain function, not async and not a generator")
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError) as error:
        refuse(f"{where}: its source cannot be read ({error}), it must stand in a file")
    _check_alone(function, where)
    return _body(text, where)


def local_code(function: Callable[..., object], source: str) -> Path | None:
    """The folder of the function's file, if the function imports a module from there; None: it needs none."""
    file = inspect.getsourcefile(function)
    if file is None:
        return None
    folder = Path(file).resolve().parent
    tree = ast.parse(source if not source[0].isspace() else f"if True:\n{source}")
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
        for name in names:
            first = folder / name.partition(".")[0]
            if first.with_suffix(".py").is_file() or (first / "__init__.py").is_file():
                return folder
    return None


def returns_value(source: str) -> bool:
    """Whether the function ever returns something."""
    inner = ast.parse(source if not source[0].isspace() else f"if True:\n{source}")
    return any(
        isinstance(node, ast.Return)
        and node.value is not None
        and not (isinstance(node.value, ast.Constant) and node.value.value is None)
        for node in _of_its_own(_definition(inner))
    )


def command(source: str, name: str, arguments: str, outputs: list[str], python: str) -> str:
    """The shell command that runs the function. Readable, unless its text could be taken for a template."""
    runner = inspect.getsource(step_runner).partition(_FUTURE)[2].strip()
    own = source if not source[0].isspace() else f"if True:\n{source}"
    call = f"import os\n\npaddleflow_step({name}, {arguments!r}, {outputs!r}, os.environ)"
    script = f"{_FUTURE}\n{own}\n\n{runner}\n\n{call}\n"
    if "{{" in script or "}}" in script or "\r" in script or "\0" in script:
        packed = base64.b64encode(script.encode()).decode()
        made = f"{python} -c 'import base64; exec(base64.b64decode(\"{packed}\"))'"
    else:
        end = _END
        while end in script.splitlines():
            end += "_"
        made = f"{python} - <<'{end}'\n{script}{end}\n"
    if len(made.encode()) > LARGEST:
        refuse(
            f"@step {name}: its command would be {len(made.encode())} bytes, it may have {LARGEST}; "
            "keep large values in files and pass them as artifacts"
        )
    return made


def _check_alone(function: FunctionType, where: str) -> None:
    if free := [name for name in function.__code__.co_freevars if name != "__class__"]:
        refuse(
            f"{where}: it uses {', '.join(free)} of the function around it, which a step cannot see; "
            "pass it as an argument"
        )
    outside = sorted(set(_globals(function.__code__)) - _AT_HOME - {function.__name__})
    if outside:
        refuse(
            f"{where}: it uses {', '.join(outside)} from outside, which a step cannot see; "
            "import it inside the function, or pass it as an argument"
        )


def _globals(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)


def _body(text: str, where: str) -> str:
    wrapped = text[0].isspace()
    definition = _definition(ast.parse(f"if True:\n{text}" if wrapped else text))
    if len(definition.decorator_list) > 1:
        refuse(f"{where}: it has other decorators, which a step would lose; call them inside the function")
    named = [
        node.id
        for default in (*definition.args.defaults, *definition.args.kw_defaults)
        if default is not None
        for node in ast.walk(default)
        if isinstance(node, ast.Name) and node.id not in _AT_HOME
    ]
    if named:
        refuse(
            f"{where}: a default uses {', '.join(named)} from outside, which a step cannot see; write the value itself"
        )
    first = definition.lineno - (2 if wrapped else 1)
    last = (definition.end_lineno or definition.lineno) - (1 if wrapped else 0)
    return "\n".join(text.splitlines()[first:last])


def _definition(tree: ast.Module) -> ast.FunctionDef:
    inner = tree.body[0]
    found = inner.body[0] if isinstance(inner, ast.If) else inner
    assert isinstance(found, ast.FunctionDef)  # all else was refused before
    return found


def _of_its_own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, without the functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield child
            yield from _of_its_own(child)
