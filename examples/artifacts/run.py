"""Files between steps, kept on the storage "work":  paddleflow fs create work local:///tmp/work"""

from paddleflow.pipeline import Artifact, ContainerStep, FSOptions, MainFS, Pipeline


@Pipeline(name="artifacts", docker_env="python:3.12", fs_options=FSOptions(MainFS("work")))
def artifacts(count=10):
    make = ContainerStep(
        name="make",
        parameters={"count": count},
        outputs={"numbers": Artifact()},
        command="seq 1 {{count}} > {{numbers}}",
    )
    add = ContainerStep(
        name="add",
        inputs={"numbers": make.outputs["numbers"]},
        outputs={"total": Artifact()},
        command="awk '{ total += $1 } END { print total }' {{numbers}} > {{total}}",
    )
    ContainerStep(
        name="show",
        inputs={"total": add.outputs["total"]},
        command='echo "the total is $(cat {{total}}), kept at $PF_INPUT_ARTIFACT_TOTAL"',
    )


if __name__ == "__main__":
    run = artifacts().submit()
    for line in run.logs(follow=True):
        print(line, end="")
    print(run.wait().status)
    for artifact in run.artifacts:
        print(artifact.step, artifact.name, artifact.path)
