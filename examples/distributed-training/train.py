"""Two or more PaddlePaddle workers fit a line to the points in a file: each takes every n-th point, gradients are averaged.

train.py POINTS MODEL EPOCHS: reads JSON ([[x, y], …]), and worker 0 writes the line as JSON.
"""

import json
import sys
from pathlib import Path

import paddle
import paddle.distributed as dist


def main(points: str, model_file: str, epochs: int) -> None:
    dist.init_parallel_env()
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = paddle.to_tensor(json.loads(Path(points).read_text())[rank::size], dtype="float32")
    inputs, targets = mine[:, :1], mine[:, 1:]
    print(f"worker {rank} of {size} has {len(mine)} points", flush=True)

    model = paddle.DataParallel(paddle.nn.Linear(1, 1))  # starts from worker 0's weights, averages gradients
    optimizer = paddle.optimizer.SGD(learning_rate=0.2, parameters=model.parameters())
    for epoch in range(epochs):
        loss = paddle.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if rank == 0 and epoch % 20 == 0:
            print(f"epoch {epoch:3d}  loss {float(loss):.5f}", flush=True)

    if rank == 0:
        weights = model.state_dict()
        line = {"slope": weights["weight"].item(), "offset": weights["bias"].item()}
        Path(model_file).write_text(json.dumps(line))
        print(f"y = {line['slope']:.2f} x + {line['offset']:.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
