"""Two steps, one after the other. Run it:  python run.py"""

from paddleflow.pipeline import PF_RUN_ID, PF_STEP_NAME, ContainerStep, Pipeline


@Pipeline(name="hello_pipeline", docker_env="python:3.12")
def hello_pipeline():
    hello = ContainerStep(name="hello", command=f'echo "Hello from run {PF_RUN_ID}"')
    ContainerStep(name="goodbye", command=f'echo "Goodbye from step {PF_STEP_NAME}"').after(hello)


if __name__ == "__main__":
    run = hello_pipeline().submit()
    for line in run.logs(follow=True):
        print(line, end="")
    print(run.wait().status)
