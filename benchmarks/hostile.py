"""What one user's worst requests do to another: B's cheap requests while A attacks, and the memory that it costs.

A, a plain user, and somebody without a token do the worst that we know of, all at once and again and again: bodies of a
login full of unknown keys, batches of jobs with a fault in each value, bodies sent by halves and held, hundreds of idle
connections, followers that never read, crowds that ask for lists, metrics and about a long queue, wrong logins, silent sessions of `job exec`,
secrets made to be costly to hide in a log, a FIFO and a file of 8 TB in a storage, stores that never answer, pipelines with a fault in each
of 2,000 steps, changes by somebody without a token. Meanwhile B asks for
``/healthz``, logs in and submits. The figures are B's, and the memory of the server at its height and a while later.
"""

from __future__ import annotations

import base64
import http.client
import json
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from benchmarks.harness import begin, percentile
from benchmarks.ours import Server, single

API = "/api/paddleflow/v1"
PASSWORD = "hostile-1"
WAITING = 2_000  #: jobs of A in a queue that never moves


def attack(url: str, token: str, job: str, talker: str) -> None:
    """The attackers: threads of a process of their own, which is ended by its parent."""
    acts = attacks(Client(url), Client(url, token), job) + newer_attacks(Client(url), Client(url, token), talker)
    threads = [threading.Thread(target=_again_and_again, args=(act,), daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _again_and_again(act: Callable[[], object]) -> None:
    while True:
        try:
            act()
        except (OSError, http.client.HTTPException):
            time.sleep(0.01)


class Client:
    """Somebody who talks to the server, with or without a token."""

    def __init__(self, url: str, token: str = "") -> None:
        self.address = urlsplit(url).netloc
        self.token = token

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, path, body, {"x-pf-authorization": self.token} if self.token else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def login(self, name: str, password: str) -> tuple[int, bytes]:
        return self.ask("POST", f"{API}/login", json.dumps({"username": name, "password": password}).encode())

    def held(self, head: str, seconds: float) -> None:
        """Open a connection, say this much, and read nothing for a while."""
        host, _, port = self.address.partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as line:
            line.sendall(head.format(token=self.token).encode())
            time.sleep(seconds)


def attacks(nobody: Client, alice: Client, job: str) -> list[Callable[[], object]]:
    keys = json.dumps({f"unknown{n}": n for n in range(3000)}).encode()
    faulty = json.dumps({"jobs": [{"command": n, "flavour": {"cpu": "x"}, "nope": n} for n in range(10_000)]}).encode()
    head = "GET {{path}} HTTP/1.1\r\nhost: x\r\nx-pf-authorization: {token}\r\n\r\n"
    follow = head.replace("{{path}}", f"{API}/job/{job}/events")
    log = head.replace("{{path}}", f"{API}/job/{job}/log?follow=true")
    half = (
        f"POST {API}/job/batch HTTP/1.1\r\nhost: x\r\nx-pf-authorization: {{token}}\r\ncontent-length: 9999999\r\n\r\n["
    )
    acts: list[Callable[[], object]] = [
        *[lambda: nobody.ask("POST", f"{API}/login", keys)] * 4,
        *[lambda: alice.ask("POST", f"{API}/job/batch", faulty)] * 3,
        *[lambda: alice.ask("GET", f"{API}/job?maxKeys=1000")] * 40,
        *[lambda: nobody.ask("GET", "/metrics")] * 20,
        *[lambda: nobody.ask("GET", "/readyz")] * 20,
        *[lambda: alice.ask("GET", f"{API}/job/{job}/eta")] * 2,
        *[lambda: alice.ask("GET", f"{API}/job/{job}/why")] * 2,
        *[lambda: nobody.login("root", "wrong")] * 2,
        *[lambda: alice.held(half, 2)] * 10,
        *[lambda: alice.held(follow, 5)] * 100,
        *[lambda: alice.held(log, 5)] * 100,
        *[lambda: nobody.held("GET /", 5)] * 300,
    ]
    return acts


def newer_attacks(nobody: Client, alice: Client, talker: str) -> list[Callable[[], object]]:
    """With what came later: exec, secrets, files of storages, remote stores."""
    silent = socket.create_server(("127.0.0.1", 0), backlog=1000)
    store = {"url": "s3://bucket", "properties": {"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}"}}
    shell = {"user": "a", "password": "b", "insecureSkipVerify": "true"}
    silent_sftp = {"url": f"sftp://127.0.0.1:{silent.getsockname()[1]}/x", "properties": shell}
    asked = [json.dumps({"name": f"remote{number}", **store}).encode() for number in range(2)]
    asked += [json.dumps({"name": f"shell{number}", **silent_sftp}).encode() for number in range(2)]
    upgrade = (
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: "
        + "A" * 22
        + "==\r\n"
    )
    head = "GET {path} HTTP/1.1\r\nhost: x\r\n{more}x-pf-authorization: {{token}}\r\n\r\n"
    execute = head.format(path=f"{API}/job/{talker}/exec", more=upgrade)
    pushes = head.format(path=f"{API}/wsjob", more=upgrade)
    sparse = head.format(path=f"{API}/fs/own/content?path=sparse", more="")
    part = b"x" * 2**20
    secret = json.dumps({"value": "a" * 60_000}).encode()
    steps = {f"s{n}": {"command": 1, "deps": ",".join(f"s{m}" for m in range(n - 200, n))} for n in range(2_000)}
    yaml = json.dumps({"name": "p", "docker_env": "none", "entry_points": steps})
    pipeline = json.dumps({"runYamlRaw": base64.b64encode(yaml.encode()).decode()}).encode()
    return [
        *[lambda: alice.held(execute, 5)] * 40,
        *[lambda: alice.held(pushes, 5)] * 40,
        *[lambda: nobody.ask("DELETE", f"{API}/user/alice")] * 10,
        *[lambda: alice.ask("POST", f"{API}/run", pipeline)] * 2,
        *[lambda: alice.held(sparse, 5)] * 40,
        *[lambda: alice.ask("GET", f"{API}/job/{talker}/log")] * 4,
        *[lambda: alice.ask("GET", f"{API}/log/job?jobID={talker}")] * 2,
        lambda: alice.ask("PUT", f"{API}/secret/another", secret),
        *[lambda: alice.ask("GET", f"{API}/fs/own/content?path=fifo")] * 10,
        *[lambda: alice.ask("GET", f"{API}/fs/own/files")] * 2,
        *[lambda: alice.ask("PUT", f"{API}/fs/own/content?path=file", part)] * 2,
        *[lambda body=body: alice.ask("POST", f"{API}/fs", body) for body in asked],
    ]


def prepare_alice(server: Server, alice: Client) -> str:
    """A storage with hostile files, and a job with secrets whose log is one long line of their letter; the job's id."""
    own = server.data / "storage" / "alice" / "own"
    alice.ask("POST", f"{API}/fs", json.dumps({"name": "own", "url": f"local://{own}"}).encode())
    os.mkfifo(own / "fifo")
    with (own / "sparse").open("wb") as file:
        file.truncate(8 * 2**40)
    for number in range(20):
        body = json.dumps({"value": "a" * (60_000 - number)}).encode()
        alice.ask("PUT", f"{API}/secret/s{number}", body)
    secrets = [{"name": f"s{number}", "file": f"s{number}"} for number in range(20)]
    document = single("head -c 8000000 /dev/zero | tr '\\0' a; sleep 100000", secrets=secrets)
    status, text = alice.ask("POST", f"{API}/job/single", json.dumps(document).encode())
    if status != 200:
        raise RuntimeError(text)
    return str(json.loads(text)["id"])


def main() -> None:
    bench = begin("hostile", __doc__)
    seconds = 15.0 if bench.quick else 60.0
    with Server(64) as server:
        server.block("blocked")
        for name in ("alice", "bob"):
            server.call("POST", "/user", {"username": name, "password": PASSWORD})
        server.call("POST", "/grant", {"userName": "alice", "resourceType": "queue", "resourceID": "blocked"})
        nobody = Client(server.url)
        alice, bob = (
            Client(server.url, json.loads(nobody.login(name, PASSWORD)[1])["authorization"])
            for name in ("alice", "bob")
        )
        document = single("sleep 100000", schedulingPolicy={"queue": "blocked"})
        ids: list[str] = []
        for _ in range(WAITING // 500):
            ids += json.loads(
                alice.ask("POST", f"{API}/job/batch", json.dumps({"jobs": [document] * 500}).encode())[1]
            )["ids"]
        talker = prepare_alice(server, alice)
        time.sleep(3)  # until its log is there
        quiet = server.memory(server.pid)
        taken: dict[str, list[float]] = {"GET /healthz": [], "a login": [], "a submit": []}
        requests: dict[str, Callable[[], tuple[int, bytes]]] = {
            "GET /healthz": lambda: bob.ask("GET", "/healthz"),
            "a login": lambda: nobody.login("bob", PASSWORD),
            "a submit": lambda: bob.ask("POST", f"{API}/job/single", job),
        }
        refused = 0
        peak = quiet
        job = json.dumps(single("true")).encode()
        attackers = multiprocessing.get_context("spawn").Process(
            target=attack, args=(server.url, alice.token, ids[-1], talker)
        )
        attackers.start()
        try:
            time.sleep(3)  # until they are at work
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                for name in taken:
                    began = time.perf_counter()
                    status, _ = requests[name]()
                    taken[name].append((time.perf_counter() - began) * 1000)
                    refused += status != 200
                peak = max(peak, server.memory(server.pid))
        finally:
            attackers.kill()
            attackers.join()
        time.sleep(12)  # what is kept without any need shows after a while
        after = server.memory(server.pid)
    for name, values in taken.items():
        bench.goal(f"{name} by another user during the attack, p99", "ms", percentile(values, 0.99), 1000, len(values))
    bench.goal("memory of the server, highest", "MiB", peak, 400)
    bench.goal("memory of the server, afterwards", "MiB", after, 400)
    bench.figure("memory of the server, before", "MiB", quiet)
    bench.note(f"{refused} of the other user's requests were refused")
    bench.finish()


if __name__ == "__main__":
    main()
