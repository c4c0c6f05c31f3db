"""One branch fails, the other goes on, and a last step runs whatever happened. The run itself ends as failed."""

from paddleflow.pipeline import FAIL_CONTINUE, PF_RUN_ID, ContainerStep, FailureOptions, Pipeline, Retry


@Pipeline(
    name="failure_and_post_process",
    docker_env="python:3.12",
    failure_options=FailureOptions(FAIL_CONTINUE),  # FAIL_FAST, the default, would stop the good branch as well
)
def branches():
    flaky = ContainerStep(
        name="flaky",
        command="echo this goes wrong; exit 3",
        retry=Retry(2, delay=0.1),  # tried three times in all
    )
    ContainerStep(name="never", command="echo nobody sees this").after(flaky)
    good = ContainerStep(name="good", command="echo this goes well", timeout=60)
    ContainerStep(name="also-good", command="echo and this").after(good)


def failure_and_post_process():
    pipeline = branches()
    pipeline.set_post_process(ContainerStep(name="report", command=f"echo run {PF_RUN_ID} is over"))
    return pipeline


if __name__ == "__main__":
    run = failure_and_post_process().submit().wait()
    for step in run.steps:
        print(f"{step.full_name:10} {step.status:10} {step.message}")
    print(run.status)
