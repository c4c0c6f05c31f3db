"""Linear regression on two or more PyTorch processes: each sees its own part of the data, gradients are averaged.

Runs on CPU over gloo. Exits with an error unless the loss fell, the true line was found, and all processes agree on it.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, FEATURES = 60, 64, 8


def main() -> None:
    dist.init_process_group("gloo")  # rank, size and where rank 0 is are in the environment
    rank, size = dist.get_rank(), dist.get_world_size()
    assert size > 1, f"alone in the world: {size} process"
    print(f"rank {rank} of {size} is ready", flush=True)
    # PyTorch waits here for threads that may wait for Python, if they are the last to let go of a tensor: so keep it.
    kept = train(rank, size)
    dist.barrier()
    dist.destroy_process_group()
    del kept


def train(rank: int, size: int) -> list[torch.Tensor]:
    """The weights as all have them in the end."""
    truth = torch.randn([FEATURES, 1], generator=torch.Generator().manual_seed(7))  # the same truth everywhere ...
    torch.manual_seed(100 + rank)  # ... but data of one's own
    inputs = torch.randn([STEPS * BATCH, FEATURES])
    targets = inputs @ truth + 0.01 * torch.randn([STEPS * BATCH, 1])

    model = DistributedDataParallel(torch.nn.Linear(FEATURES, 1))  # starts from rank 0's weights, averages gradients
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        loss = mse_loss(model(inputs[part]), targets[part])
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean) / size)
        if rank == 0 and (step % 10 == 0 or step == STEPS - 1):
            print(f"step {step:3d}  loss {losses[-1]:.5f}", flush=True)

    weights = model.module.weight.detach()
    everybody = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(everybody, weights)
    apart = max(float((weights - other).abs().max()) for other in everybody)
    wrong = float((weights.flatten() - truth.flatten()).abs().max())
    assert losses[-1] < losses[0] / 100, f"the loss did not fall: {losses[0]:.5f} to {losses[-1]:.5f}"
    assert apart == 0, f"the processes disagree by {apart}"
    assert wrong < 0.05, f"the weights are off by {wrong}"
    print(f"rank {rank}: all {size} processes agree, weights within {wrong:.4f} of the truth", flush=True)
    return [weights, *everybody]


if __name__ == "__main__":
    main()
