"""Pi by numerical integration, shared out between MPI ranks; exits with an error unless the sum is right on every rank."""

import math

from mpi4py import MPI

SLICES = 1_000_000


def main() -> None:
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    assert size > 1, f"alone in the world: {size} rank"
    print(f"rank {rank} of {size} on {MPI.Get_processor_name()}", flush=True)
    width = 1.0 / SLICES
    mine = width * sum(4.0 / (1.0 + (width * (n + 0.5)) ** 2) for n in range(rank, SLICES, size))
    pi = world.allreduce(mine)
    assert abs(pi - math.pi) < 1e-9, f"rank {rank} found {pi}"
    assert world.allgather(pi) == [pi] * size, "the ranks disagree"
    if rank == 0:
        print(f"pi is {pi:.12f}, found by {size} ranks", flush=True)


if __name__ == "__main__":
    main()
