"""What the templates of one component name, when loops have become single elements. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.exporters.placeholders import PARAMETER, RUN, SHARED, TEXT, USER, VALUE, placeholder
from paddleflow.runs.names import artifact_folder, with_seq
from paddleflow.spec.pipeline.model import Component, Dag, Pipeline, Step, Value
from paddleflow.spec.pipeline.operators import as_number, given
from paddleflow.spec.pipeline.templates import LOOP_ARGUMENT, PARENT, Reference, as_text, references, render, single

_NO_ITEM = object()
_QUOTES = re.compile(r"['\"\\]")  #: what must not stand in a quoted text as it is


class NotKnown(Exception):
    """The value is known only when the pipeline runs; names what it depends on."""


@dataclass(slots=True)
class SharedScope:
    """What all scopes of one pipeline share."""

    pipeline: Pipeline
    parameters: dict[str, Value] = field(default_factory=dict)  #: that were left open
    fixed: set[str] = field(default_factory=set)  #: that decide a loop
    read: set[tuple[str, str]] = field(default_factory=set)  #: steps and artifacts of theirs that a condition reads


@dataclass(frozen=True, slots=True)
class Scope:
    """One component at its place, or one element of its loop."""

    shared: SharedScope
    parent: Scope | None
    component: Component | None  #: None: the pipeline itself
    siblings: Mapping[str, Component]
    seq: int = 0
    item: Any = _NO_ITEM
    post: bool = False

    @staticmethod
    def top(pipeline: Pipeline) -> Scope:
        return Scope(SharedScope(pipeline), None, None, {})

    @staticmethod
    def of(parent: Scope, component: Component, seq: int = 0, item: Any = _NO_ITEM) -> Scope:
        return Scope(parent.shared, parent, component, parent.children, seq, item)

    @staticmethod
    def of_post_process(top: Scope, step: Step) -> Scope:
        return Scope(top.shared, top, step, {}, post=True)

    # ---- names

    @property
    def children(self) -> Mapping[str, Component]:
        if self.component is None:
            return self.shared.pipeline.entry_points
        return self.component.children if isinstance(self.component, Dag) else {}

    @property
    def instance(self) -> str:
        return with_seq(self._own.name, self.seq)

    @property
    def full_name(self) -> str:
        """Dotted, with the numbers of elements."""
        return self._path + self.instance

    @property
    def _path(self) -> str:
        above = self.parent
        return "" if above is None or above.component is None else f"{above.full_name}."

    @property
    def dotted_name(self) -> str:
        """As the document has it, without the numbers of elements."""
        return "" if self.component is None or self.parent is None else self.parent.dotted(self.component.name)

    def dotted(self, child: str) -> str:
        return f"{self.dotted_name}.{child}" if self.component is not None else child

    @property
    def _own(self) -> Component:
        assert self.component is not None, "the pipeline itself has no name of a component"
        return self.component

    # ---- values of templates

    def open(self, ref: Reference) -> Any:
        """What a template names, with parameters left open."""
        return self._look_up(ref, static=False)

    def value(self, ref: Reference) -> Any:
        """What a template names; `NotKnown` for what only the target knows. Parameters on the way are fixed."""
        return self._look_up(ref, static=True)

    def quoted(self, ref: Reference) -> str:
        """What a template names inside a condition that is handed on as text: numbers bare, everything else quoted. What is
        in a file only the target knows."""
        if self.is_file(ref):
            return placeholder(VALUE, self._own.inputs[ref.name].strip("{ }"))
        text, value = as_text(self.open(ref)), self._sample(ref)
        if value is not None and as_number(given(value)) is not None:
            return text
        return text if value in ("true", "false") else "'" + _QUOTES.sub(r"\\\g<0>", text) + "'"

    def between_quotes(self, ref: Reference) -> str:
        """The same for a template that stands in quotes."""
        if self.is_file(ref):
            return placeholder(TEXT, self._own.inputs[ref.name].strip("{ }"))
        return as_text(self.open(ref))

    def _sample(self, ref: Reference) -> Any:
        """The value that the document gives, to see of what kind it is."""
        before = set(self.shared.fixed)
        try:
            return self.value(ref)
        except NotKnown:
            return None
        finally:
            self.shared.fixed.clear()
            self.shared.fixed.update(before)

    def _look_up(self, ref: Reference, *, static: bool) -> Any:
        if ref.component == PARENT:
            assert self.parent is not None
            return self.parent._look_up(Reference("", ref.name), static=static)
        if ref.component:
            sibling = Scope(self.shared, self.parent, self.siblings[ref.component], self.siblings)
            return sibling._parameter(ref.name, static)
        own = self._own
        if ref.name == LOOP_ARGUMENT:
            return "" if self.item is _NO_ITEM else self.item
        if ref.name == "PF_STEP_NAME":
            return own.name
        if ref.name in ("PF_RUN_ID", "PF_USER_NAME"):
            if static:
                raise NotKnown(ref.name)
            return placeholder(RUN if ref.name == "PF_RUN_ID" else USER)
        if ref.name in own.parameters:
            return self._parameter(ref.name, static)
        if static:
            raise NotKnown(f"artifact {ref.name}")
        return self.input_path(ref.name) if ref.name in own.inputs else self.output_path(ref.name)

    def _parameter(self, name: str, static: bool) -> Any:
        value = self._own.parameters[name].value
        if references(value):
            return render(value, self.value if static else self.open)
        full = f"{self.dotted_name}.{name}"
        if static:
            self.shared.fixed.add(full)
            return value
        if isinstance(value, list) or full in self.shared.fixed:
            return value
        self.shared.parameters[full] = value
        return placeholder(PARAMETER, full)

    # ---- loops

    @property
    def loop_text(self) -> str:
        return "" if self.item is _NO_ITEM else as_text(self.item)

    def loop_items(self) -> list[Any]:
        """The elements that the component loops over; `NotKnown` when they are known only at run time."""
        loop = self._own.loop_argument
        whole = single(loop.strip()) if isinstance(loop, str) else None
        if whole is not None:
            loop = self.value(whole)
        if isinstance(loop, str):
            try:
                loop = json.loads(loop)
            except ValueError as error:
                raise NotKnown(f"the text [{loop[:40]}]") from error
        if not isinstance(loop, list):
            raise NotKnown(f"[{as_text(loop)[:40]}], which is no list")
        return loop

    # ---- artifacts

    def is_file(self, ref: Reference) -> bool:
        """Whether a template names an input: in a condition that means what is in it."""
        return not ref.component and ref.name in self._own.inputs

    def note_read(self, name: str) -> bool:
        """A condition reads this input; False unless one step beside this component makes it, and makes it once."""
        ref = single(self._own.inputs[name].strip())
        maker = self.siblings.get(ref.component) if ref is not None else None
        if ref is None or not isinstance(maker, Step) or maker.loop_argument is not None:
            return False
        self.shared.read.add((self._path + maker.name, ref.name))
        return True

    def is_read(self, output: str) -> bool:
        """Whether a condition reads this output."""
        return (self.full_name, output) in self.shared.read

    def input_path(self, name: str) -> str:
        """Where an input artifact lies; several paths with commas between, where a loop made them."""
        ref = single(self._own.inputs[name].strip())
        assert ref is not None, "the reader has checked that it is one template"
        assert self.parent is not None
        if ref.component == PARENT:
            return self.parent.input_path(ref.name)
        return self.parent._made(self.siblings[ref.component], ref.name)

    def output_path(self, name: str) -> str:
        own, pipeline = self._own, self.shared.pipeline
        if isinstance(own, Dag):
            ref = single(own.outputs[name].strip())
            assert ref is not None, "the reader has checked that it is one template"
            return self._made(own.children[ref.component], ref.name)
        folder = artifact_folder(placeholder(RUN), pipeline.name, own.name, self.seq, self.full_name, post=self.post)
        return f"{placeholder(SHARED)}/{folder}/{name}"

    def _made(self, child: Component, name: str) -> str:
        """The paths of what all elements of a child make."""
        scope = Scope.of(self, child)
        if child.loop_argument is None:
            return scope.output_path(name)
        try:
            items = scope.loop_items()
        except NotKnown:  # the child itself is refused for that
            return scope.output_path(name)
        return ",".join(Scope.of(self, child, seq, item).output_path(name) for seq, item in enumerate(items))
