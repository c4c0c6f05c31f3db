"""Linear regression with TensorFlow's parameter servers: the chief hands out steps, workers do them, weights lie on the server.

Runs on CPU. Workers and servers serve until they are stopped; the job ends with the chief, which exits with an error unless
the true line was found and the weights are where they should be.
"""

import json
import os

import tensorflow as tf

STEPS, BATCH, FEATURES = 100, 64, 8


def main() -> None:
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if task["type"] != "chief":
        server = tf.distribute.Server(cluster.cluster_spec(), job_name=task["type"], task_index=task["index"])
        print(f"{task['type']} {task['index']} serves", flush=True)
        server.join()

    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    truth = tf.random.stateless_normal([FEATURES, 1], seed=[7, 7])
    with strategy.scope():
        weights = tf.Variable(tf.zeros([FEATURES, 1]))

    @tf.function
    def train() -> tf.Tensor:
        def one() -> tf.Tensor:
            inputs = tf.random.normal([BATCH, FEATURES])
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((inputs @ weights - inputs @ truth) ** 2)
            weights.assign_sub(0.05 * tape.gradient(loss, weights))
            return loss

        return strategy.run(one)

    losses = [coordinator.schedule(train) for _ in range(STEPS)]
    coordinator.join()
    print(f"loss {losses[0].fetch():.5f} to {losses[-1].fetch():.5f}", flush=True)
    wrong = float(tf.reduce_max(abs(weights - truth)))
    assert wrong < 0.05, f"the weights are off by {wrong}"
    assert "/job:ps" in weights.device, f"the weights are on {weights.device}"
    print(f"weights on the server, within {wrong:.4f} of the truth", flush=True)


if __name__ == "__main__":
    main()
