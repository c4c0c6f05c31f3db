"""Linear regression on two or more TensorFlow workers: each sees its own part of the data, gradients are added up.

Runs on CPU. Exits with an error unless the loss fell, the true line was found, and all workers agree on it.
"""

import json
import os

import tensorflow as tf

STEPS, BATCH, FEATURES = 60, 64, 8


def main() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # who and where the others are is in TF_CONFIG
    rank, size = json.loads(os.environ["TF_CONFIG"])["task"]["index"], strategy.num_replicas_in_sync
    assert size > 1, f"alone in the world: {size} worker"
    print(f"worker {rank} of {size} is ready", flush=True)

    truth = tf.random.stateless_normal([FEATURES, 1], seed=[7, 7])  # the same truth everywhere ...
    inputs = tf.random.stateless_normal([STEPS, BATCH, FEATURES], seed=[100, rank])  # ... but data of one's own
    targets = inputs @ truth + 0.01 * tf.random.stateless_normal([STEPS, BATCH, 1], seed=[200, rank])
    with strategy.scope():
        weights = tf.Variable(tf.zeros([FEATURES, 1]))

    @tf.function
    def train(step: tf.Tensor) -> tf.Tensor:
        def one(step: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((inputs[step] @ weights - targets[step]) ** 2) / size
            weights.assign_sub(0.1 * everybody_s(tape.gradient(loss, weights)))
            return everybody_s(loss)

        return strategy.run(one, args=(step,))

    def everybody_s(part: tf.Tensor) -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, part)

    losses = []
    for step in range(STEPS):
        losses.append(float(train(tf.constant(step))))
        if rank == 0 and (step % 10 == 0 or step == STEPS - 1):
            print(f"step {step:3d}  loss {losses[-1]:.5f}", flush=True)

    mean = strategy.run(lambda: everybody_s(weights.read_value() / size))
    apart, wrong = float(tf.reduce_max(abs(weights - mean))), float(tf.reduce_max(abs(weights - truth)))
    assert losses[-1] < losses[0] / 100, f"the loss did not fall: {losses[0]:.5f} to {losses[-1]:.5f}"
    assert apart < 1e-6, f"the workers disagree by {apart}"
    assert wrong < 0.05, f"the weights are off by {wrong}"
    print(f"worker {rank}: all {size} workers agree, weights within {wrong:.4f} of the truth", flush=True)


if __name__ == "__main__":
    main()
