"""Linear regression on two or more PaddlePaddle workers: each sees its own part of the data, gradients are averaged.

Runs on CPU over gloo. Exits with an error unless the loss fell, the true line was found, and all workers agree on it.
"""

import paddle
import paddle.distributed as dist

STEPS, BATCH, FEATURES = 60, 64, 8


def main() -> None:
    dist.init_parallel_env()
    rank, size = dist.get_rank(), dist.get_world_size()
    assert size > 1, f"alone in the world: {size} worker"
    print(f"worker {rank} of {size} is ready", flush=True)

    paddle.seed(7)  # the same truth everywhere ...
    truth = paddle.randn([FEATURES, 1])
    paddle.seed(100 + rank)  # ... but data of one's own
    inputs = paddle.randn([STEPS * BATCH, FEATURES])
    targets = inputs @ truth + 0.01 * paddle.randn([STEPS * BATCH, 1])

    model = paddle.DataParallel(paddle.nn.Linear(FEATURES, 1))  # starts from rank 0's weights, averages gradients
    optimizer = paddle.optimizer.SGD(learning_rate=0.1, parameters=model.parameters())
    losses = []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        loss = paddle.nn.functional.mse_loss(model(inputs[part]), targets[part])
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean) / size)
        if rank == 0 and (step % 10 == 0 or step == STEPS - 1):
            print(f"step {step:3d}  loss {losses[-1]:.5f}", flush=True)

    weights = model.state_dict()["weight"]
    everybody: list[paddle.Tensor] = []
    dist.all_gather(everybody, weights)
    apart = max(float((weights - other).abs().max()) for other in everybody)
    wrong = float((weights - truth).abs().max())
    assert losses[-1] < losses[0] / 100, f"the loss did not fall: {losses[0]:.5f} to {losses[-1]:.5f}"
    assert apart == 0, f"the workers disagree by {apart}"
    assert wrong < 0.05, f"the weights are off by {wrong}"
    print(f"worker {rank}: all {size} workers agree, weights within {wrong:.4f} of the truth", flush=True)


if __name__ == "__main__":
    main()
