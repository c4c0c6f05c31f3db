"""A step that is a distributed job: two PaddlePaddle workers train together. Storages, from this repository's root:
paddleflow fs create work local:///tmp/work;  paddleflow fs create examples local://$PWD/examples
"""

from paddleflow.pipeline import Artifact, ExtraFS, FSOptions, JobStep, MainFS, Member, Pipeline, step


@step
def prepare(count: int):
    import random

    draw = random.Random(7)
    xs = [draw.uniform(-1, 1) for _ in range(count)]
    return [[x, 3 * x + 2 + draw.gauss(0, 0.05)] for x in xs]


@step
def evaluate(model):
    import json

    line = json.loads(model.read_text())
    assert abs(line["slope"] - 3) < 0.1 and abs(line["offset"] - 2) < 0.1, line
    print("the line was found:", line)


@Pipeline(
    name="distributed_training",
    docker_env="paddlepaddle/paddle:3.3.1",
    fs_options=FSOptions(
        MainFS("work"),
        ExtraFS("examples", sub_path="distributed-training", mount_path="/tmp/mnt/code", read_only=True),
    ),
)
def distributed_training(count=400, epochs=100):
    train = JobStep(
        name="train",
        framework="paddle",
        members=[
            Member(
                "worker",
                replicas=2,
                flavour={"cpu": "1", "mem": "1Gi"},
                env={"OMP_NUM_THREADS": "1"},
                command="python /tmp/mnt/code/train.py {{points}} {{model}} {{epochs}}",
            )
        ],
        parameters={"epochs": epochs},
        inputs={"points": prepare(count).result},
        outputs={"model": Artifact()},
    )
    evaluate(train.outputs["model"])


if __name__ == "__main__":
    run = distributed_training().submit()
    for line in run.logs(follow=True):
        print(line, end="")
    print(run.wait().status)
