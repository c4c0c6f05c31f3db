"""Linear regression that goes on from its last checkpoint, with however many workers there are this time.

Workers see their own part of the data, gradients are averaged, rank 0 keeps a checkpoint in CHECKPOINTS after each step. When
members fail, are lost or change in number, all begin anew and the training goes on where it was. Exits with an error unless the
loss fell and the true line was found.
"""

import json
import os
import time
from pathlib import Path

import paddle
import paddle.distributed as dist

STEPS, BATCH, FEATURES = int(os.environ.get("STEPS", "60")), 64, 8  # noqa: TID251 - a program of the user's
PACE = float(os.environ.get("PACE", "0"))  # noqa: TID251 - seconds that a step takes at least
FOLDER = Path(os.environ.get("CHECKPOINTS", "checkpoints"))  # noqa: TID251


def load(model: paddle.nn.Layer) -> tuple[int, float]:
    """(next step, first loss) of the last checkpoint, whose weights are the model's from now on."""
    file = FOLDER / "last.json"
    if not file.exists():
        return 0, 0.0
    kept = json.loads(file.read_text())
    model.set_state_dict({name: paddle.to_tensor(value) for name, value in kept["weights"].items()})
    return kept["step"], kept["first"]


def save(model: paddle.nn.Layer, step: int, first: float) -> None:
    """Whole or not at all: a worker may be killed at any line."""
    weights = {name: value.numpy().tolist() for name, value in model.state_dict().items()}
    draft = FOLDER / "draft.json"
    draft.write_text(json.dumps({"step": step, "first": first, "weights": weights}))
    draft.replace(FOLDER / "last.json")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    dist.init_parallel_env()
    rank, size = dist.get_rank(), max(dist.get_world_size(), 1)
    paddle.seed(7)
    truth = paddle.randn([FEATURES, 1])
    net = paddle.nn.Linear(FEATURES, 1)
    step, first = load(net)
    model = paddle.DataParallel(net) if size > 1 else net
    formation = os.environ.get("PADDLE_FORMATION", "1")  # noqa: TID251
    print(f"worker {rank} of {size} goes on at step {step}, formation {formation}", flush=True)
    optimizer = paddle.optimizer.SGD(learning_rate=0.1, parameters=model.parameters())
    loss = None
    while step < STEPS:
        began = time.monotonic()
        paddle.seed(1000 * step + rank)
        inputs = paddle.randn([BATCH, FEATURES])
        loss = paddle.nn.functional.mse_loss(model(inputs), inputs @ truth)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        first = first or float(loss)
        step += 1
        if rank == 0:
            save(net, step, first)
            print(f"step {step} loss {float(loss):.6f} with {size}", flush=True)
        time.sleep(max(0.0, PACE - (time.monotonic() - began)))
    wrong = float((net.weight - truth).abs().max())
    assert wrong < 0.05, f"the weights are off by {wrong}"
    assert loss is None or float(loss) < first / 100, f"the loss did not fall: {first} to {float(loss)}"
    print(f"worker {rank} of {size}: done, weights within {wrong:.4f} of the truth", flush=True)


if __name__ == "__main__":
    main()
