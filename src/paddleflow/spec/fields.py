"""Field types that the documents of clusters, queues, flavours, pools and storages share.

They check while a document is decoded, so a bad name, a bad quantity and a wrong type come out together, each with its
place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, Field

from paddleflow.base import names
from paddleflow.base.quantity import Resources, parse_milli, parse_quantity
from paddleflow.spec.document import Document, LooseText

MOST_ENTRIES = 256  #: keys of one map, words of one list


def named(rule: names.NameRule) -> AfterValidator:
    """Refuses what does not match the rule, with the rule's sentence."""

    def check(value: str) -> str:
        if fault := rule.fault(value):
            raise ValueError(fault)
        return value

    return AfterValidator(check)


def one_of(what: str, known: tuple[str, ...]) -> AfterValidator:
    """Refuses any other word, and names the nearest."""

    def check(value: str) -> str:
        if value not in known:
            raise ValueError(f"{what}[{value[:40]}] is not supported, {names.nearest(value, known)}")
        return value

    return AfterValidator(check)


def _quantity(parse: Callable[[str], int]) -> AfterValidator:
    def check(value: str) -> str:
        if value.strip():
            parse(value)
        return value.strip()

    return AfterValidator(check)


def _scalars(values: dict[str, str]) -> dict[str, str]:
    faults = [fault for name in values if (fault := names.RESOURCE.fault(name))]
    for name, text in values.items():
        if name in {"cpu", "mem", "memory"}:
            faults.append(f"{name} is not a scalar resource, write it beside scalarResources")
        try:
            parse_milli(text or "0")
        except ValueError as error:
            faults.append(f"{name[:80]}: {error}")
    if faults:
        raise ValueError("; ".join(faults))
    return values


def _labels(values: dict[str, str]) -> dict[str, str]:
    faults = [fault for key in values if (fault := names.LABEL_KEY.fault(key))]
    faults += [fault for value in values.values() if (fault := names.LABEL_VALUE.fault(value))]
    if faults:
        raise ValueError("; ".join(faults))
    return values


def _annotations(values: dict[str, str]) -> dict[str, str]:
    faults = [fault for key in values if (fault := names.LABEL_KEY.fault(key))]
    if faults:
        raise ValueError("; ".join(faults))
    return values


#: Any text that is kept.
Text = Annotated[str, Field(max_length=4096)]
#: A few words.
ShortText = Annotated[str, Field(max_length=255)]
#: Cores as a quantity; empty stands for "not given".
Cpu = Annotated[LooseText, _quantity(parse_milli)]
#: Bytes as a quantity; empty stands for "not given".
Memory = Annotated[LooseText, _quantity(parse_quantity)]
#: Further resources by name; an empty amount, or 0, takes the name away.
Scalars = Annotated[dict[str, LooseText], Field(max_length=MOST_ENTRIES), AfterValidator(_scalars)]
Labels = Annotated[dict[str, LooseText], Field(max_length=MOST_ENTRIES), AfterValidator(_labels)]
Annotations = Annotated[dict[str, Text], Field(max_length=MOST_ENTRIES), AfterValidator(_annotations)]
Namespace = Annotated[str, named(names.NAMESPACE), Field(description=names.NAMESPACE.wanted)]


class Amounts(Document):
    """Quantities of cpu, memory and further resources. Memory may be called ``mem`` or ``memory``."""

    cpu: Cpu = Field(default="", description="cores, such as 4 or 500m")
    mem: Memory = Field(default="", description="memory, such as 20Gi")
    memory: Memory = Field(default="", description="the same as mem")
    scalar_resources: Scalars = Field(default={}, description="further resources, such as nvidia.com/gpu")

    @property
    def memory_text(self) -> str:
        return self.mem or self.memory

    def missing(self) -> list[str]:
        """Which of cpu and mem are not given."""
        return [key for key, text in (("cpu", self.cpu), ("mem", self.memory_text)) if not text]

    def disagree(self) -> str:
        """What is wrong when mem and memory are both given and differ; empty otherwise."""
        if self.mem and self.memory and parse_quantity(self.mem) != parse_quantity(self.memory):
            return f"mem {self.mem} and memory {self.memory} name the same thing but differ"
        return ""

    def over(self, old: Resources) -> Resources:
        """`old` with what is given here: a scalar of no amount goes, an empty ``scalarResources`` takes all away."""
        scalars = dict(old.scalars)
        if "scalar_resources" in self.model_fields_set and not self.scalar_resources:
            scalars = {}
        scalars.update({name: parse_milli(text or "0") for name, text in self.scalar_resources.items()})
        cpu = parse_milli(self.cpu) if self.cpu else old.cpu
        memory = parse_quantity(self.memory_text) if self.memory_text else old.memory
        return Resources.of(cpu, memory, scalars)

    def resources(self) -> Resources:
        """What is given here, nothing for the rest."""
        return self.over(Resources())
