"""Pi by throwing darts in Ray tasks, all over the cluster that the platform brought up; exits with an error unless it is near."""

import random

import ray

TASKS, DARTS = 8, 50_000


@ray.remote
def hits(seed: int) -> int:
    """How many darts of one task land inside the circle."""
    rng = random.Random(seed)
    return sum(rng.random() ** 2 + rng.random() ** 2 < 1.0 for _ in range(DARTS))


def main() -> None:
    ray.init()  # RAY_ADDRESS says where
    print(f"a cluster of {ray.cluster_resources()['CPU']:.0f} cores", flush=True)
    pi = 4 * sum(ray.get([hits.remote(seed) for seed in range(TASKS)])) / (TASKS * DARTS)
    assert abs(pi - 3.14159) < 0.02, f"found {pi}"
    print(f"pi is near {pi:.3f}, found by {TASKS} tasks", flush=True)


if __name__ == "__main__":
    main()
