"""What flows between components: parameters, artifacts, and the element that a loop is at.

`str()` of each gives a template that may stand in commands, variables and conditions of other components; the compiler
finds it there and makes the parameters and inputs that it needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from paddleflow.base.names import ENV_NAME
from paddleflow.pipeline.names import LOOP, OWN, TEMPLATE, VARIABLE, check, refuse, template

if TYPE_CHECKING:  # a component has values, and a value knows whose it is
    from paddleflow.pipeline.components import Component

_TYPES: dict[type, str] = {str: "string", float: "float", int: "int", list: "list"}
_BY_WORD = {word: kind for kind, word in _TYPES.items()}


class Parameter:
    """A value that a run may replace. A default that is not of the type is turned into it.

    One that stands in `component.parameters` knows its component and name. Given to another component it is a reference.
    """

    def __init__(self, default: Any = None, type: str | type | None = None) -> None:
        self.type = _word(type)
        self._default = self._cast(default)
        self.component: Component | None = None
        self.name = ""
        self.ref: Any = None  #: what it stands for instead of an own default: a plain value, Parameter or LoopItem

    @property
    def default(self) -> Any:
        return self._default

    @default.setter
    def default(self, value: Any) -> None:
        self._default = self._cast(value)
        self.ref = None

    def __str__(self) -> str:
        return self._template("parameter")

    def __repr__(self) -> str:
        return f"Parameter({self.default!r}, {self.type!r})" if self.component is None else str(self)

    def copy(self) -> Parameter:
        """One that belongs to nobody yet."""
        return Parameter(self.default, self.type)

    def _template(self, kind: str) -> str:
        if self.component is None:
            refuse("a Parameter that belongs to no step or DAG has no place in a text")
        return template(f"{kind}: {self.component.full_name}", self.name)

    def _cast(self, value: Any) -> Any:
        if self.type is None or value is None:
            return value
        kind = _BY_WORD[self.type]
        if isinstance(value, kind) and not isinstance(value, bool):
            return value
        try:
            return kind(value)
        except (TypeError, ValueError) as error:
            refuse(f"the default {value!r} of a Parameter cannot be turned into its type {self.type!r}: {error}")


def _word(kind: str | type | None) -> str | None:
    if kind is None or kind in _BY_WORD:
        return kind
    if not isinstance(kind, type) or kind not in _TYPES:
        refuse(f"the type of a Parameter is {kind!r}, it must be one of {', '.join(_BY_WORD)}")
    return _TYPES[kind]


class Artifact:
    """Something that a step leaves behind: `Artifact()` in its outputs, `step.outputs[name]` as the input of another."""

    def __init__(self) -> None:
        self.component: Component | None = None
        self.name = ""
        self.ref: Artifact | None = None  #: of an input, and of a DAG's output: the artifact that it is

    def __str__(self) -> str:
        if self.component is None:
            refuse("an Artifact that belongs to no step or DAG has no place in a text")
        return template(f"artifact: {self.component.full_name}", self.name)


class LoopItem:
    """The element that a loop is at."""

    def __init__(self, component: Component) -> None:
        self.component = component

    def __str__(self) -> str:
        return template(f"loop: {self.component.full_name}", LOOP)


Loop: TypeAlias = "list[Any] | str | Parameter | Artifact | LoopItem"


class LoopArgument:
    """What a component is repeated over; `item` is the element that it is at."""

    def __init__(self, argument: Loop, component: Component) -> None:
        self._where = f"loop_argument of {component.label}"
        self.component = component
        self.argument = argument
        self.item = LoopItem(component)
        if isinstance(argument, str):
            self._check_text(argument)
        elif isinstance(argument, list | tuple):
            self._check_elements(list(argument))
        elif isinstance(argument, LoopItem) and argument.component is component:
            refuse(f"{self._where}: a component cannot loop over its own element")
        elif isinstance(argument, Parameter | Artifact) and argument.component is None:
            refuse(f"{self._where}: the {type(argument).__name__} belongs to no step or DAG")
        elif not isinstance(argument, Parameter | Artifact | LoopItem):
            refuse(
                f"{self._where} is of type {type(argument).__name__}, it must be a list, a JSON list as text, "
                "a Parameter, an Artifact or the loop item of a DAG around it"
            )

    def _check_text(self, text: str) -> None:
        if TEMPLATE.search(text) or OWN.fullmatch(text):
            return
        try:
            found = json.loads(text)
        except ValueError as error:
            refuse(f"{self._where} is {text!r}, it must be a JSON list or one whole template: {error}")
        if not isinstance(found, list):
            refuse(f"{self._where} is {text!r}, it must be a JSON list or one whole template")
        self._check_elements(found)

    def _check_elements(self, elements: list[Any]) -> None:
        for element in elements:
            if type(element) not in _TYPES:
                refuse(f"{self._where}: its element {element!r} is not text, a number or a list")


class Parameters(dict[str, Parameter]):
    """The parameters of a component. Set a plain value, a new Parameter, a Parameter of another component, a loop item."""

    def __init__(self, component: Component) -> None:
        super().__init__()
        self._component = component

    def __setitem__(self, name: str, value: Any) -> None:
        where = f"parameter of {self._component.label}"
        check(VARIABLE, name, where)
        if isinstance(value, Parameter) and value.component is None:
            value.component, value.name = self._component, name
            super().__setitem__(name, value)
            return
        if isinstance(value, Parameter) and value.component is self._component:
            refuse(f"{where}: {name} cannot refer to {value.name} of the same component")
        if not isinstance(value, Parameter | LoopItem) and type(value) not in _TYPES:
            refuse(
                f"{where}: {name} is {value!r}, it must be text, a number, a list, a Parameter or the loop item of a DAG"
            )
        made = Parameter()
        made.component, made.name, made.ref = self._component, name, value
        super().__setitem__(name, made)

    def fill(self, given: Mapping[str, Any] | None) -> Parameters:
        for name, value in _table(given, "parameters", self._component).items():
            fresh = isinstance(value, Parameter) and value.component is None
            self[name] = value.copy() if fresh else value  # so that one Parameter may be given to many steps
        return self


class Inputs(dict[str, Artifact]):
    """The inputs of a component: artifacts of others."""

    def __init__(self, component: Component) -> None:
        super().__init__()
        self._component = component

    def __setitem__(self, name: str, value: Any) -> None:
        where = f"input of {self._component.label}"
        check(VARIABLE, name, where)
        if not isinstance(value, Artifact) or value.component is None or value.component is self._component:
            refuse(f"{where}: {name} is {_shown(value)}, it must be an output of another step or DAG")
        made = Artifact()
        made.component, made.name, made.ref = self._component, name, value
        super().__setitem__(name, made)

    def fill(self, given: Mapping[str, Any] | None) -> Inputs:
        for name, value in _table(given, "inputs", self._component).items():
            self[name] = value
        return self


class Outputs(dict[str, Artifact]):
    """The outputs of a step (`Artifact()` each), or of a DAG (artifacts of what is inside it)."""

    def __init__(self, component: Component) -> None:
        super().__init__()
        self._component = component

    def __setitem__(self, name: str, value: Any) -> None:
        where = f"output of {self._component.label}"
        check(VARIABLE, name, where)
        inner = isinstance(value, Artifact) and value.component is not None
        if self._component.kind == "dag" and not inner:
            refuse(f"{where}: {name} is {_shown(value)}, it must be an output of a step inside")
        if self._component.kind == "step" and (inner or not isinstance(value, Artifact)):
            refuse(f"{where}: {name} is {_shown(value)}, it must be Artifact()")
        made = Artifact() if inner else value
        made.component, made.name, made.ref = self._component, name, value if inner else None
        super().__setitem__(name, made)

    def fill(self, given: Mapping[str, Any] | None) -> Outputs:
        for name, value in _table(given, "outputs", self._component).items():
            fresh = isinstance(value, Artifact) and value.component is None
            self[name] = Artifact() if fresh else value
        return self


class Environment(dict[str, str]):
    """Variables of a component or pipeline. Values are text; a Parameter or loop item stands for itself."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def __setitem__(self, name: str, value: Any) -> None:
        check(ENV_NAME, name, f"env of {self._where}")
        if isinstance(value, Artifact):
            refuse(f"env of {self._where}: {name} cannot refer to an artifact")
        if isinstance(value, bool) or not isinstance(value, str | int | float | Parameter | LoopItem):
            refuse(f"env of {self._where}: {name} is {value!r}, it must be text, a number or a Parameter")
        super().__setitem__(name, str(value))

    def fill(self, given: Mapping[str, Any] | None) -> Environment:
        for name, value in (given or {}).items():
            self[name] = value
        return self


def _table(given: Mapping[str, Any] | None, what: str, component: Component) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        refuse(f"{what} of {component.label} is {given!r}, it must be a dict")
    return given or {}


def _shown(value: object) -> str:
    if isinstance(value, Artifact):
        return "Artifact()" if value.component is None else str(value)
    return repr(value)
