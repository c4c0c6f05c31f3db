"""Run it twice: the second time the slow step is taken from the first run. Storage:  paddleflow fs create work local:///tmp/work"""

from paddleflow.pipeline import Artifact, CacheOptions, ContainerStep, FSOptions, MainFS, Pipeline


@Pipeline(
    name="cache",
    docker_env="python:3.12",
    fs_options=FSOptions(MainFS("work")),
    cache_options=CacheOptions(enable=True, max_expired_time=86400),  # a result counts for a day
)
def cache(rows=100):
    slow = ContainerStep(
        name="slow",
        parameters={"rows": rows},  # another value, another result
        outputs={"data": Artifact()},
        command='echo "working hard"; seq 1 {{rows}} > {{data}}',
    )
    ContainerStep(
        name="report",
        inputs={"data": slow.outputs["data"]},
        cache_options=CacheOptions(enable=False),  # this one runs each time
        command='echo "$(wc -l < {{data}}) rows"',
    )


if __name__ == "__main__":
    run = cache().submit().wait()
    for step in run.steps:
        print(step.full_name, f"reused from {step.reused_from}" if step.reused_from else "ran")
