"""A step that runs only if its condition holds; one that does not is skipped, and the run still succeeds."""

from paddleflow.pipeline import Artifact, ContainerStep, FSOptions, MainFS, Pipeline


@Pipeline(name="condition", docker_env="python:3.12", fs_options=FSOptions(MainFS("work")))
def condition(accuracy=0.93):
    measure = ContainerStep(
        name="measure",
        parameters={"accuracy": accuracy},
        outputs={"verdict": Artifact()},
        command="""awk 'BEGIN { printf({{accuracy}} > 0.9 ? "good" : "bad") }' > {{verdict}}""",
    )
    reached = measure.parameters["accuracy"]
    ContainerStep(
        name="release",
        condition=f"{reached} > 0.9 && {reached} <= 1",
        command=f"echo released at {reached}",
    )
    ContainerStep(
        name="repair",
        condition=f"{measure.outputs['verdict']} == bad",  # the content of a small file
        command="echo back to work",
    )


if __name__ == "__main__":
    run = condition().submit().wait()
    for step in run.steps:
        print(step.full_name, step.status)
