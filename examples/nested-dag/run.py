"""DAGs inside a pipeline: a function that builds one is written once and used twice; artifacts cross the borders by themselves."""

from paddleflow.pipeline import DAG, Artifact, ContainerStep, FSOptions, MainFS, Pipeline


def study(name, factor, numbers):
    """A DAG of two steps; returns the artifact that comes out of it."""
    with DAG(name=name):
        scale = ContainerStep(
            name="scale",
            parameters={"factor": factor},
            inputs={"numbers": numbers},
            outputs={"scaled": Artifact()},
            command="awk '{ print $1 * {{factor}} }' {{numbers}} > {{scaled}}",
        )
        add = ContainerStep(
            name="add",
            inputs={"numbers": scale.outputs["scaled"]},
            outputs={"total": Artifact()},
            command="awk '{ total += $1 } END { print total }' {{numbers}} > {{total}}",
        )
    return add.outputs["total"]


@Pipeline(name="nested_dag", docker_env="python:3.12", fs_options=FSOptions(MainFS("work")))
def nested_dag():
    make = ContainerStep(name="make", outputs={"numbers": Artifact()}, command="seq 1 4 > {{numbers}}")
    doubled = study("double", 2, make.outputs["numbers"])
    tripled = study("triple", 3, make.outputs["numbers"])
    ContainerStep(
        name="compare",
        inputs={"a": doubled, "b": tripled},
        command='echo "doubled $(cat {{a}}), tripled $(cat {{b}})"',
    )


if __name__ == "__main__":
    run = nested_dag().submit()
    for line in run.logs(follow=True):
        print(line, end="")
    print(run.wait().status)
