"""The source of a Python function as the command of a step.

What a function needs must be inside it: imports, helpers, constants. What is not is found here, when the function is
decorated, and not on the machine where the step runs.
"""

from __future__ import annotations

import ast
import base64
import builtins
import dis
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType

from paddleflow.pipeline import in_step
from paddleflow.pipeline.names import refuse

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
    runner = inspect.getsource(in_step).partition(_FUTURE)[2].strip()
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
