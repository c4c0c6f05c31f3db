"""How long a cheap request waits while the scheduler is at work on a hundred thousand jobs.

A server with many waiting jobs of many sizes is asked for ``GET /healthz`` on one connection, again and again, while whole cycles
run: a queue is changed, so that every job is looked at anew, and the server is killed and started, so that everything is read and
rebuilt. The same while a pipeline of thousands of steps is read, checked and registered, again and again. The figures are what such
a request took. "Quiet" is the same without anything to do.
"""

from __future__ import annotations

import base64
import http.client
import threading
import time
from urllib.parse import urlsplit

from benchmarks.harness import begin, wait_for
from benchmarks.ours import Server, single
from benchmarks.peers import Graph
from benchmarks.pipelines import document

SIZES = 500  #: different sizes of jobs: so many classes does the scheduler look at


class Probe:
    """Asks for ``/healthz`` from a thread while a ``with`` lasts."""

    def __init__(self, server: Server) -> None:
        self._address = urlsplit(server.url).netloc
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.milliseconds: list[float] = []

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=120)
        while not self._over.is_set():
            began = time.perf_counter()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            self.milliseconds.append((time.perf_counter() - began) * 1000)
            time.sleep(0.001)

    def at(self, share: float) -> float:
        """The time that this share of the requests did not exceed."""
        return sorted(self.milliseconds)[min(int(len(self.milliseconds) * share), len(self.milliseconds) - 1)]


def _ceiling(server: Server, cpus: int) -> None:
    body = {"maxResources": {"cpu": str(cpus), "mem": f"{cpus}Gi"}}
    server.call("PUT", "/queue/blocked", body)


def _compiles(steps: int, rounds: int) -> Probe:
    """Registers a large pipeline on a server of its own; what requests took meanwhile."""
    text = base64.b64encode(document(Graph(steps)).encode()).decode()
    with Server(2, PADDLEFLOW_SERVER_MAX_BULK_BODY=str(2**27)) as server, Probe(server) as probe:
        for _ in range(rounds):
            server.call("POST", "/pipeline/check", {"yamlRaw": text})
        server.call("POST", "/pipeline", {"yamlRaw": text})
    return probe


def main() -> None:
    bench = begin("responsiveness", __doc__)
    pending, rounds, steps = (20_000, 5, 5_000) if bench.quick else (100_000, 7, 10_000)
    compiles = _compiles(steps, rounds)
    with Server(4096) as server:
        server.block("blocked")
        with Probe(server) as quiet:
            time.sleep(2)
        documents = [
            single(
                "sleep 100000",
                flavour={"cpu": "1", "mem": f"{64 + n % SIZES}Mi"},
                schedulingPolicy={"queue": "blocked"},
            )
            for n in range(pending)
        ]
        server.submit_many(documents)
        probe = server.call("POST", "/job/single", single("true"))["id"]
        wait_for(lambda: server.call("GET", f"/job/{probe}")["status"] == "succeeded", "all are known", 300, 0.1)
        with Probe(server) as cycles:
            for number in range(rounds):
                _ceiling(server, 3 + number)
                last = server.call("POST", "/job/single", single("true"))["id"]
                wait_for(lambda: server.call("GET", f"/job/{last}")["status"] == "succeeded", "a cycle", 300, 0.05)  # noqa: B023
        server.kill()
        server.start()
        with Probe(server) as again:
            last = server.call("POST", "/job/single", single("true"))["id"]
            wait_for(lambda: server.call("GET", f"/job/{last}")["status"] == "succeeded", "the first turn", 300, 0.05)
    for name, found in (
        ("quiet", quiet),
        (f"cycles over {pending:,} jobs", cycles),
        ("after a restart", again),
        (f"compiles of {steps:,} steps", compiles),
    ):
        bench.goal(f"GET /healthz, p99, {name}", "ms", found.at(0.99), 50, len(found.milliseconds))
        bench.goal(f"GET /healthz, longest, {name}", "ms", found.at(1.0), 250, len(found.milliseconds))
    bench.finish()


if __name__ == "__main__":
    main()
