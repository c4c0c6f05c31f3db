"""A small flow from data to a registered model, in plain Python: prepare, train, evaluate, register if it is good enough.

Storage:  paddleflow fs create work local:///tmp/work
"""

from paddleflow.pipeline import FSOptions, MainFS, Pipeline, step


@step(outputs=["train_set", "test_set"])
def prepare(rows: int, seed: int = 7):
    """Points of two kinds, above and below a line."""
    import random

    draw = random.Random(seed)
    points = []
    for _ in range(rows):
        x, y = draw.uniform(-1, 1), draw.uniform(-1, 1)
        points.append([x, y, int(2 * x - y + draw.gauss(0, 0.1) > 0.3)])
    cut = rows * 4 // 5
    print(cut, "rows to learn from,", rows - cut, "to test with")
    return {"train_set": points[:cut], "test_set": points[cut:]}


@step
def train(train_set, epochs: int = 200, rate: float = 1.0):
    """Logistic regression by gradient descent."""
    import math

    a = b = c = 0.0
    for epoch in range(epochs):
        da = db = dc = loss = 0.0
        for x, y, kind in train_set:
            p = 1 / (1 + math.exp(-(a * x + b * y + c)))
            da, db, dc = da + (p - kind) * x, db + (p - kind) * y, dc + p - kind
            loss -= math.log(p if kind else 1 - p)
        a, b, c = (w - rate * d / len(train_set) for w, d in ((a, da), (b, db), (c, dc)))
        if epoch % 50 == 0:
            print("epoch", epoch, "loss", round(loss / len(train_set), 4))
    return [a, b, c]


@step
def evaluate(model, test_set):
    a, b, c = model
    right = sum((a * x + b * y + c > 0) == bool(kind) for x, y, kind in test_set)
    print("right for", right, "of", len(test_set))
    return right / len(test_set)


@step
def register(model, registry: str, run: str):
    import json
    import pathlib

    folder = pathlib.Path(registry)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{run}.json").write_text(json.dumps(model))
    print("registered", folder / f"{run}.json")


@Pipeline(name="machine_learning", docker_env="python:3.12", fs_options=FSOptions(MainFS("work")))
def machine_learning(rows=600, registry="/tmp/paddleflow-models"):
    data = prepare(rows)
    model = train(data["train_set"])
    accuracy = evaluate(model, data["test_set"])
    good_enough = f"{accuracy.result} >= 0.9"  # otherwise it is skipped
    register.options(condition=good_enough)(model, registry, "{{PF_RUN_ID}}")


if __name__ == "__main__":
    run = machine_learning().submit()
    for line in run.logs(follow=True):
        print(line, end="")
    print(run.wait().status)
