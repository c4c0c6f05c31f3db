"""Random programs: whatever somebody writes in Python compiles to the same document each time, and a good one."""

from __future__ import annotations

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.pipeline import DAG, Artifact, ContainerStep, FSOptions, MainFS, Parameter, Pipeline
from paddleflow.pipeline.compiler import as_yaml
from paddleflow.pipeline.components import Component
from paddleflow.spec.pipeline.document import read


class Program:
    """Builds a pipeline by choices: each step may take artifacts and parameters of whatever may be referred to there."""

    def __init__(self, choices: list[int]) -> None:
        self._choices = iter(choices)
        self._count = 0
        self._steps: list[ContainerStep] = []

    def choose(self, most: int) -> int:
        return next(self._choices, 0) % most

    def fill(self, depth: int, dags: list[DAG]) -> None:
        for _ in range(1 + self.choose(3)):
            self._count += 1
            if depth < 3 and self.choose(3) == 1:
                loop = [[1, 2], None, "[1, 2]"][self.choose(3)]
                with DAG(name=f"dag-{self._count}", loop_argument=loop) as dag:
                    if self.choose(2):
                        dag.parameters["width"] = Parameter(3, int)
                    self.fill(depth + 1, [*dags, dag])
            else:
                self._steps.append(self.step(dags))

    def step(self, dags: list[DAG]) -> ContainerStep:
        step = ContainerStep(
            name=f"step-{self._count}",
            command="run {{out}}",
            parameters={"rate": [0.5, "x", Parameter(1), Parameter("2", int)][self.choose(4)]},
            outputs={"out": Artifact(), "log": Artifact()},
        )
        for number in range(self.choose(3)):
            self.refer(step, dags, number)
        return step

    def refer(self, step: ContainerStep, dags: list[DAG], number: int) -> None:
        kind = self.choose(6)
        sources = [of for of in self._steps if of.condition is None]  # of one that may be skipped nothing can be taken
        if kind == 0 and sources:
            of = sources[self.choose(len(sources))]
            step.inputs[f"in{number}"] = of.outputs[("out", "log")[self.choose(2)]]
        elif kind == 1 and sources:
            step.command = f"{step.command} {sources[self.choose(len(sources))].outputs['log']}"
        elif kind == 2 and self._steps:
            step.after(self._steps[self.choose(len(self._steps))])
        elif kind == 3 and (near := [of for of in self._steps if self.visible(of, dags)]):
            of = near[self.choose(len(near))]
            step.parameters[f"p{number}"] = of.parameters["rate"]
            step.add_env({f"E{number}": of.parameters["rate"]})
        elif kind == 4 and (around := [dag for dag in dags if "width" in dag.parameters]):
            step.condition = f"{around[self.choose(len(around))].parameters['width']} > 1"
        elif kind == 5 and (looping := [dag for dag in dags if dag.loop_argument is not None]):
            argument = looping[self.choose(len(looping))].loop_argument
            assert argument is not None
            step.command = f"{step.command} {argument.item}"

    def visible(self, of: Component, dags: list[DAG]) -> bool:
        return of.parent is None or of.parent.parent is None or of.parent in dags


def built(choices: list[int]) -> Pipeline:
    return Pipeline(name="random", docker_env="image", fs_options=FSOptions(MainFS("main")))(
        lambda: Program(choices).fill(0, [])
    )()


@settings(max_examples=200)
@given(st.lists(st.integers(0, 11), max_size=80))
def test_a_program_compiles_to_one_good_document(choices: list[int]) -> None:
    one, two = built(choices), built(choices)
    text = as_yaml(one.compile())
    assert as_yaml(one.compile()) == text
    assert as_yaml(two.compile()) == text
    document = yaml.safe_load(text)
    assert document == one.compile()
    assert set(read(text).entry_points) == set(document["entry_points"])
