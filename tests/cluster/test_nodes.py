"""Real nodes: pods run, find each other by name across nodes, wait for their gang. (A node is lost in test_operator_nodes.)"""

from __future__ import annotations

from tests.cluster_fixture import LiveCluster

HELLO = """
apiVersion: v1
kind: Pod
metadata: {name: hello}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: docker.io/local/busybox:1, command: [echo, "hello from a pod"]}
"""

TALK = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8000}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: docker.io/local/busybox:1
    command: [sh, -c, "mkdir /web && echo found > /web/it && exec httpd -f -p 8000 -h /web"]
---
apiVersion: v1
kind: Pod
metadata: {name: ask}
spec:
  nodeName: node2
  restartPolicy: Never
  containers:
  - name: main
    image: docker.io/local/busybox:1
    command: [sh, -c, "until wget -qO- http://web:8000/it; do usleep 100000; done"]
"""

GANG = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: gang}
spec: {minMember: 2, queue: default}
"""

MEMBER = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, annotations: {scheduling.k8s.io/group-name: gang}}
spec:
  schedulerName: volcano
  restartPolicy: Never
  containers: [{name: main, image: docker.io/local/busybox:1, command: ["true"]}]
"""


def test_a_pod_runs_to_its_end(cluster: LiveCluster) -> None:
    with cluster.namespace() as namespace:
        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=HELLO)
        cluster.wait("pod/hello", "jsonpath={.status.phase}=Succeeded", namespace)
        assert cluster.kubectl("logs", "-n", namespace, "hello") == "hello from a pod\n"


def test_pods_find_each_other_across_nodes_by_name(cluster: LiveCluster) -> None:
    with cluster.namespace() as namespace:
        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=TALK)
        cluster.wait("pod/ask", "jsonpath={.status.phase}=Succeeded", namespace)
        assert cluster.kubectl("logs", "-n", namespace, "ask").endswith("found\n")


def test_a_gang_waits_until_it_is_whole(cluster: LiveCluster) -> None:
    with cluster.namespace() as namespace:
        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=GANG + "---" + MEMBER.replace("NAME", "first"))
        cluster.wait("podgroup/gang", "jsonpath={.status.conditions[0].type}=Unschedulable", namespace)
        assert cluster.kubectl("get", "-n", namespace, "pod/first", "-o", "jsonpath={.spec.nodeName}") == ""
        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=MEMBER.replace("NAME", "second"))
        for name in ("first", "second"):
            cluster.wait(f"pod/{name}", "jsonpath={.status.phase}=Succeeded", namespace)


def test_the_machine_keeps_its_kernel_settings(cluster: LiveCluster) -> None:
    """A kubelet wants other values than most machines have; it must see its own, and the machine keep what it has."""
    assert cluster.on("node1", "cat", "/proc/sys/kernel/panic") == "10\n"
    inside = cluster.on("node1", "cat", "/proc/1/mountinfo")
    with open("/proc/self/mountinfo") as outside:
        mounts = outside.read()
    assert "/proc/sys/kernel/panic " in inside
    assert "/proc/sys/kernel/panic " not in mounts
    assert cluster.name not in mounts
