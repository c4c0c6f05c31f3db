"""Names in a pipeline written in Python: which are allowed, which are made up, and what stands for a value in a text.

A made-up name is `<prefix>_<param|art>_<code>`, the code worked out from what is referred to. It must never change: names
are part of what decides whether a cached result may be used again.
"""

from __future__ import annotations

import hashlib
import re
from typing import NoReturn

from paddleflow.base.names import NameRule
from paddleflow.sdk.legacy.calls import PaddleFlowSDKException
from paddleflow.spec.pipeline.reader import COMPONENT, PIPELINE, VARIABLE

ERROR = "PipelineDSLError"

PF_RUN_ID = "{{PF_RUN_ID}}"
PF_STEP_NAME = "{{PF_STEP_NAME}}"
PF_USER_NAME = "{{PF_USER_NAME}}"
PF_LOOP_ARGUMENT = "{{PF_LOOP_ARGUMENT}}"
SYSTEM = frozenset({PF_RUN_ID, PF_STEP_NAME, PF_USER_NAME, PF_LOOP_ARGUMENT})

ROOT = "PF-ENTRY-POINT"  #: name of the DAG that a pipeline's own components stand in
PARENT = "PF_PARENT"
LOOP = "PF_LOOP_ARGUMENT"

__all__ = ["COMPONENT", "PIPELINE", "VARIABLE"]  # the language's own rules of names

_COMPONENT, _VARIABLE = COMPONENT.pattern.pattern, VARIABLE.pattern.pattern

#: what `str()` of a parameter, artifact or loop item gives, to be found again in commands, variables and conditions
TEMPLATE = re.compile(
    r"\{\{\s*(?P<kind>parameter|artifact|loop):\s*"
    rf"(?P<owner>{_COMPONENT}(?:\.{_COMPONENT})*)\.(?P<name>{_VARIABLE})\s*\}}\}}",
    re.ASCII,
)
#: a template of the language that names something of the component itself
OWN = re.compile(rf"\{{\{{\s*(?P<name>{_VARIABLE})\s*\}}\}}", re.ASCII)

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def refuse(message: str) -> NoReturn:
    """Every refusal of this package, in the class that existing programs catch."""
    raise PaddleFlowSDKException(ERROR, message)


def check(rule: NameRule, value: object, where: str) -> str:
    if not isinstance(value, str):
        refuse(f"{where}: {rule.what}[{value!r}] is invalid, it must be text")
    if fault := rule.fault(value):
        refuse(f"{where}: {fault}")
    return value


def is_whole(value: object) -> bool:
    """A whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    return isinstance(value, float) or is_whole(value)


def code(owner: str, name: str) -> str:
    """The md5 of `<owner>.<name>` in base 36."""
    number = int(hashlib.md5(f"{owner}.{name}".encode(), usedforsecurity=False).hexdigest(), 16)
    text = ""
    while True:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
        if not number:
            return text


def made_up(prefix: str, kind: str, owner: str, name: str) -> str:
    """The name of a parameter (`kind` param) or input (art) that nobody wrote but a reference needs."""
    return f"{prefix}_{kind}_{code(owner, name)}"


def template(*parts: str) -> str:
    return "{{" + ".".join(parts) + "}}"
