"""Values that a run may replace:  python run.py 3"""

import sys

from paddleflow.pipeline import ContainerStep, Parameter, Pipeline


@Pipeline(name="parameters", docker_env="python:3.12")
def parameters(epochs=10):
    plan = ContainerStep(
        name="plan",
        parameters={"epochs": Parameter(epochs, type="int"), "model": "linear"},
        command="echo planned {{epochs}} epochs of {{model}} for $PF_USER_NAME",
    )
    ContainerStep(
        name="train",
        parameters={
            "epochs": plan.parameters["epochs"],  # of another step: it keeps its type
            "rate": Parameter(0.1, type=float),
            "layers": [64, 32],
        },
        env={"RATE": "{{rate}}"},
        # a parameter may also stand in a text; what the step needs for it is worked out
        command=f"echo train the {plan.parameters['model']} model for {{{{epochs}}}} epochs at $RATE with {{{{layers}}}}",
    )


if __name__ == "__main__":
    run = parameters(*map(int, sys.argv[1:])).submit(parameters={"train.rate": 0.5})
    for line in run.logs(follow=True):
        print(line, end="")
    print(run.wait().status)
