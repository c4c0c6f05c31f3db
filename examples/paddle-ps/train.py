"""A small click model on PaddlePaddle's parameter server: a table of words kept on the servers, trained by the workers.

Every member runs this program; `fleet` takes the role from the environment. Servers serve until the workers are done.
A worker exits with an error unless its loss fell, and unless it knows words that only the other workers have seen.
"""

import os

import numpy as np
import paddle
from paddle.distributed import fleet

STEPS, BATCH, WORDS, WIDTH = 200, 64, 100, 8


def click_model() -> paddle.static.Variable:
    """One word in, the loss of the guessed click out. The words' vectors and the weights lie on the servers."""
    words = paddle.static.data("words", [None, 1], "int64")
    clicked = paddle.static.data("clicked", [None, 1], "float32")
    vectors = paddle.static.nn.sparse_embedding(words, [WORDS, WIDTH])
    score = paddle.static.nn.fc(vectors, 1)
    return paddle.nn.functional.binary_cross_entropy_with_logits(score, clicked)


def batch(words: np.ndarray) -> dict[str, np.ndarray]:
    """People click on even words and never on odd ones: there is nothing to learn but each word by itself."""
    return {"words": words.reshape(-1, 1), "clicked": (words.reshape(-1, 1) % 2 == 0).astype("float32")}


def train(loss: paddle.static.Variable) -> None:
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    worker, workers = fleet.worker_index(), fleet.worker_num()
    print(f"worker {worker} of {workers} is ready, servers: {fleet.server_endpoints(to_string=True)}", flush=True)

    def run(words: np.ndarray) -> float:
        (value,) = executor.run(paddle.static.default_main_program(), feed=batch(words), fetch_list=[loss])
        return float(value)

    everything = np.arange(WORDS)
    mine = everything[(everything // 2) % workers == worker]  # pairs of an even and an odd word, dealt out
    dealer = np.random.default_rng(worker)
    losses = []
    for step in range(STEPS):
        losses.append(run(dealer.choice(mine, BATCH)))
        if step % 40 == 0 or step == STEPS - 1:
            print(f"step {step:3d}  loss {losses[-1]:.4f}", flush=True)
    fleet.barrier_worker()
    theirs = run(np.setdiff1d(everything, mine)) if workers > 1 else 0.0
    fleet.barrier_worker()  # nobody lets go of the servers while another one still asks them
    fleet.stop_worker()
    assert losses[-1] < losses[0] / 2, f"the loss did not fall: {losses[0]:.4f} to {losses[-1]:.4f}"
    assert theirs < losses[0] / 2, f"the other workers' words are unknown here: loss {theirs:.4f}"
    print(f"worker {worker}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, on the others' words {theirs:.4f}", flush=True)


def main() -> None:
    # Paddle leaves an http.log where it runs: better in the job's own folder than beside the program.
    os.chdir(os.environ.get("PF_WORK_DIR", "."))  # noqa: TID251 - a program of the user's, not of the platform
    paddle.enable_static()
    fleet.init(is_collective=False)
    loss = click_model()
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    fleet.distributed_optimizer(paddle.optimizer.Adam(learning_rate=0.05), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        print(f"server {fleet.server_index()} of {fleet.server_num()} is ready", flush=True)
        fleet.run_server()
    else:
        train(loss)


if __name__ == "__main__":
    main()
