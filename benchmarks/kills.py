"""Random kills while pipelines run: what the steps themselves wrote decides whether anything was lost or done twice.

Runs with a loop over an artifact, a nested dag, a step that fails twice and rests before each retry, a chain of short steps
(which are prefetched) and, in every other run, a step that fails, go on while the server, the keeper or both are killed with
SIGKILL, or the server is stopped and continued, at random moments. A schedule starts a small run every few seconds meanwhile,
and each of its slots must have exactly one. Every step appends a line to the ledger of its run when it
starts and when it ends, with its job (one for each try), its attempt and a nonce of its own process. Afterwards every run must
have ended as its document says, and every try must have started once and ended. After a kill of the keeper a try may
end without anybody seeing its exit code; where the platform says so of a job, the run is counted apart, and only that it
ended and that no try started twice counts.

Each batch is a new server, and its seed is the batch's number. With ``BENCH_DATABASE_URL`` every second batch is on that PostgreSQL,
in a schema of its own; without it all are on SQLite. ``tests/e2e/test_run_kills.py`` runs a small batch on each.

The part ``moving`` counts the seconds until jobs move again after each kind of fault.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import Bench, begin, percentile, wait_for
from benchmarks.ours import KEEPER, Server, command_of, single

FAULTS = ("server", "keeper", "both", "stop")
FINAL = ("succeeded", "failed", "terminated", "skipped")
MAX_ACTIVE = 3  #: runs at a time
LONGEST_PAUSE = 0.6  #: seconds between two faults
BATCH = 100  #: kills on one server
SLOTS, WAITING = 2, 40  #: of the server whose standstill is measured, and jobs that wait there
WORDS = {
    "server": "kill -9 of the server",
    "keeper": "kill -9 of the keeper",
    "both": "kill -9 of both",
    "stop": f"SIGSTOP of the server for {LONGEST_PAUSE:g} s",
}
ITEMS, INNER, CHAIN, TRIES = (1, 2, 3), (1, 2), 6, 3
#: What the platform says of a try whose end nobody saw.
EXCUSES = ("ended while nobody watched", "lost: the keeper")

#: Starts of each step, by its label in the ledger.
GOOD_STARTS = Counter(
    ["make", "after", "last"]
    + [f"each-{item}" for item in ITEMS]
    + [f"{name}-{item}" for name in ("inner", "outer") for item in INNER]
    + ["flaky"] * TRIES
    + [f"short-{number}" for number in range(CHAIN)]
)
SCHEDULED_STARTS = Counter(["tick"])
EVERY = 3  #: seconds between two slots of the schedule


def step(ledger: Path, label: str, body: str, **more: object) -> dict[str, object]:
    """A step that writes a line when it starts and one when it ends."""
    line = f'{label} $PF_JOB_ID $PF_JOB_ATTEMPT $nonce" >> $ledger'
    command = (
        f"nonce=$(cat /proc/sys/kernel/random/uuid); ledger={ledger}/$PF_RUN_ID; "
        f'echo "start {line}; {body}; code=$?; echo "end {line}; exit $code'
    )
    return {"command": command, **more}


def document(ledger: Path, fails: bool) -> str:
    """The pipeline; JSON is YAML."""
    loop, item = "$PF_LOOP_ARGUMENT", {"item": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}
    parts: dict[str, object] = {
        "make": step(ledger, "make", f"echo '{json.dumps(ITEMS)}' > {{{{list}}}}", artifacts={"output": ["list"]}),
        "each": step(
            ledger, f"each-{loop}", "sleep 0.05", deps="make",
            loop_argument="{{list}}", artifacts={"input": {"list": "{{make.list}}"}},
        ),
        "flaky": step(
            ledger, "flaky", f'[ $(grep -c "^start flaky " $ledger) -ge {TRIES} ]',
            retry={"times": TRIES - 1, "delay": 0.3},
        ),
        "after": step(ledger, "after", "true", deps="flaky"),
        "nest": {
            "loop_argument": list(INNER),
            "entry_points": {
                "outer": step(ledger, "outer-{{item}}", "sleep 0.02", parameters=item),
                "inner": step(ledger, "inner-{{item}}", "true", deps="outer", parameters=item),
            },
        },
    }  # fmt: skip
    for number in range(CHAIN):
        deps = {"deps": f"short{number - 1}"} if number else {}
        parts[f"short{number}"] = step(ledger, f"short-{number}", "true", **deps)
    if fails:
        parts["bad"] = step(ledger, "bad", "false")
        parts["never"] = step(ledger, "never", "true", deps="bad")
    return json.dumps(
        {
            "name": "kills", "docker_env": "none", "parallelism": 4, "fs_options": {"main_fs": {"name": "store"}},
            "failure_options": {"strategy": "continue"}, "entry_points": parts,
            "post_process": {"last": step(ledger, "last", "true")},
        }
    )  # fmt: skip


def scheduled_document(ledger: Path) -> str:
    """The pipeline that the schedule runs."""
    return json.dumps(
        {"name": "ticks", "docker_env": "none", "entry_points": {"tick": step(ledger, "tick", "sleep 0.05")}}
    )


@dataclass(frozen=True, slots=True)
class Line:
    word: str  #: start or end
    label: str
    attempt: str  #: job and attempt: one try
    nonce: str


def read_ledger(file: Path) -> list[Line]:
    found = []
    for text in file.read_text().splitlines() if file.exists() else ():
        word, label, job, attempt, nonce = text.split()
        found.append(Line(word, label, f"{job} {attempt}", nonce))
    return found


@dataclass(slots=True)
class Verdict:
    """What is wrong, in words, and what was counted."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    runs: int = 0
    starts: int = 0
    slots: int = 0  #: of the schedule that have runs
    unseen: int = 0  #: runs in which the platform says that the end of a try was not seen
    faults: Counter[str] = field(default_factory=Counter)
    restarts: list[float] = field(default_factory=list)  #: seconds until a killed server was ready again

    def judge(
        self,
        run: str,
        fails: bool,
        status: str,
        lines: Sequence[Line],
        messages: Mapping[str, str],
        good: Counter[str] = GOOD_STARTS,
    ) -> None:
        """One run that should have ended; `messages` of its jobs, `good` are the starts of one that succeeds."""
        self.runs += 1
        starts = [line for line in lines if line.word == "start"]
        self.starts += len(starts)
        for attempt, count in Counter(line.attempt for line in starts).items():
            if count > 1:
                self.doubled.append(f"{run}: {attempt} started {count} times")
        if status not in FINAL:
            self.lost.append(f"{run} is {status}")
            return
        excused = [job for job, message in messages.items() if any(words in message for words in EXCUSES)]
        if excused:
            self.unseen += 1
            return
        wanted = "failed" if fails else "succeeded"
        if status != wanted:
            self.lost.append(f"{run} is {status}, not {wanted}: {dict(messages)}")
        expected = good + Counter({"bad": 1} if fails else {})
        counted = Counter(line.label for line in starts)
        for label in expected.keys() | counted.keys():
            if counted[label] < expected[label]:
                self.lost.append(
                    f"{run}: {label} started {counted[label]} times, not {expected[label]}: {dict(messages)}"
                )
            elif counted[label] > expected[label]:
                self.doubled.append(f"{run}: {label} started {counted[label]} times, not {expected[label]}")
        ended = {line.nonce for line in lines if line.word == "end"}
        self.lost += [f"{run}: {line.label} started and never ended" for line in starts if line.nonce not in ended]

    def judge_slots(self, slots: Sequence[float], stopped_at: float) -> None:
        """The slots that have runs, of a schedule that was stopped at this moment: all of them, each once."""
        counted = Counter(slots)
        self.slots += len(counted)
        self.doubled += [f"slot {slot:.0f} has {count} runs" for slot, count in counted.items() if count > 1]
        if not counted:
            self.lost.append("no slot of the schedule has a run")
            return
        first, last = min(counted), max(counted)
        wanted = {first + EVERY * number for number in range(int((last - first) // EVERY) + 1)}
        self.lost += [f"slot {slot:.0f} has no run" for slot in sorted(wanted - counted.keys())]
        if last < stopped_at - 2 * EVERY:
            self.lost.append(f"the last slot with a run is {stopped_at - last:.0f} s before the schedule was stopped")


def inflict(server: Server, fault: str, pause: float) -> list[float]:
    """One fault; the seconds until a server that was killed for it was ready again. `pause`: how long a stop lasts."""
    if fault == "stop":
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(pause)
        os.kill(server.pid, signal.SIGCONT)
    if fault in ("server", "both"):
        server.kill()
    if fault in ("keeper", "both"):
        for pid in server.processes():
            if command_of(pid) == KEEPER:
                os.kill(pid, signal.SIGKILL)
    return [server.start()] if fault in ("server", "both") else []


def standstill(server: Server, fault: str) -> float:
    """Seconds from a fault to the next start that nobody had asked for before, among many short jobs that wait.

    A stop counts from its end. Without a fault: what that takes anyway.
    """
    starts = server.folder / "starts"
    starts.write_text("")
    server.submit_many([single(f"echo >> {starts}; sleep 0.1")] * WAITING)
    wait_for(lambda: starts.stat().st_size >= SLOTS, "the first jobs", every=0.002)
    before, began = starts.stat().st_size, time.perf_counter()
    pause = LONGEST_PAUSE if fault == "stop" else 0.0
    inflict(server, fault, pause)
    # As many as there are slots may have been on their way.
    wait_for(lambda: starts.stat().st_size > before + SLOTS, "the next start", within=120, every=0.002)
    seconds = time.perf_counter() - began - pause
    server.settle()
    return seconds


def moving(bench: Bench, rounds: int) -> None:
    """How long jobs stand still after each kind of fault."""
    with Server(SLOTS) as server:
        usual = [standstill(server, "") for _ in range(rounds)]
        for fault, words in WORDS.items():
            found = [standstill(server, fault) for _ in range(rounds)]
            bench.figure(f"until jobs move again after {words}", "s", found, "without a fault", usual)


class Batch:
    """One server, its runs, and what happens to it."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._random = random.Random(seed)
        self._ledger = server.folder / "ledger"
        self._runs: dict[str, bool] = {}  # run → whether it is to fail
        self._active: set[str] = set()
        self.verdict = Verdict()

    def run(self, kills: int) -> Verdict:
        """So many faults, then the end of all runs, then the judgement."""
        store = self._server.folder / "store"
        store.mkdir()
        self._ledger.mkdir()
        self._server.call("POST", "/fs", {"name": "store", "url": f"local://{store}"})
        schedule = self._schedule()
        for number in range(kills):
            self._submit()
            time.sleep(self._random.random() * LONGEST_PAUSE)
            fault = FAULTS[number % len(FAULTS)] if number < len(FAULTS) else self._random.choice(FAULTS)
            self.verdict.restarts += inflict(self._server, fault, self._random.random() * LONGEST_PAUSE)
            self.verdict.faults[fault] += 1
        scheduled = self._end_schedule(schedule)
        with contextlib.suppress(TimeoutError):  # the verdict names those that have not ended
            wait_for(self._all_ended, "the end of all runs", within=120, every=0.1)
        for run, fails in self._runs.items():
            self._judge(run, fails)
        for run in scheduled:
            self._judge(run, False, SCHEDULED_STARTS)
        return self.verdict

    def _schedule(self) -> str:
        raw = base64.b64encode(scheduled_document(self._ledger).encode()).decode()
        pipeline = self._server.call("POST", "/pipeline", {"yamlRaw": raw})["pipelineID"]
        body = {"name": "ticks", "pipelineID": pipeline, "crontab": f"@every {EVERY}s", "timezone": "UTC"}
        made: str = self._server.call("POST", "/schedule", body)["scheduleID"]
        return made

    def _end_schedule(self, schedule: str) -> list[str]:
        """Stop it and judge its slots; the runs that it made, which are waited for like the others."""
        time.sleep(EVERY)  # what was due while the server was away is caught up with
        self._server.call("PUT", f"/schedule/{schedule}", action="stop")
        stopped_at, runs, marker = time.time(), dict[str, float](), ""
        while True:
            page = self._server.call("GET", f"/schedule/{schedule}", marker=marker)["runs"]
            runs |= {run["runID"]: _moment(run["scheduledTime"]) for run in page["runList"]}
            if not page["isTruncated"]:
                break
            marker = page["nextMarker"]
        self.verdict.judge_slots(list(runs.values()), stopped_at)
        self._active |= runs.keys()
        return list(runs)

    def _submit(self) -> None:
        self._active = {run for run in self._active if self._status(run) not in FINAL}
        if len(self._active) < MAX_ACTIVE:
            fails = len(self._runs) % 2 == 1
            raw = base64.b64encode(document(self._ledger, fails).encode()).decode()
            run: str = self._server.call("POST", "/run", {"runYamlRaw": raw})["runID"]
            self._runs[run] = fails
            self._active.add(run)

    def _status(self, run: str) -> str:
        return str(self._server.call("GET", f"/run/{run}")["status"])

    def _all_ended(self) -> bool:
        self._active = {run for run in self._active if self._status(run) not in FINAL}
        return not self._active

    def _judge(self, run: str, fails: bool, good: Counter[str] = GOOD_STARTS) -> None:
        """By all jobs of the run: those that wrote to the ledger, earlier tries included, and those that never came to it."""
        lines = read_ledger(self._ledger / run)
        view = self._server.call("GET", f"/run/{run}")
        jobs = {line.attempt.partition(" ")[0] for line in lines}
        messages = {job: self._message(job) for job in sorted(jobs)} | _messages(view)
        known = {job: message for job, message in messages.items() if message}
        self.verdict.judge(run, fails, str(view["status"]), lines, known, good)

    def _message(self, job: str) -> str:
        found: dict[str, Any] = self._server.call("GET", f"/job/{job}")
        return str(found.get("message") or "")


def _moment(text: str) -> float:
    """A moment of an answer, which is in the zone of this machine, as the server is."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").astimezone().timestamp()


def _messages(view: object) -> dict[str, str]:
    """The messages of all steps in a run's view, by job; a step without a job says nothing of interest."""
    found: dict[str, str] = {}
    waiting = [view]
    while waiting:
        match waiting.pop():
            case dict() as each:
                if each.get("jobID") and each.get("jobMessage"):
                    found[str(each["jobID"])] = str(each["jobMessage"])
                waiting += each.values()
            case list() as each:
                waiting += each
    return found


def run_batch(kills: int, seed: int, database: str = "") -> Verdict:
    """A batch on a server of its own."""
    more = {"PADDLEFLOW_DATABASE_URL": database} if database else {}
    with Server(6, **more) as server:
        return Batch(server, seed).run(kills)


def new_schema(url: str, name: str) -> str:
    """The url whose connections see nothing but a new schema."""
    subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", f"create schema {name}", url], check=True)
    return f"{url}{'&' if '?' in url else '?'}options=-c%20search_path%3D{name}"


def measure(bench: Bench, kills: int) -> None:
    lost = doubled = runs = starts = slots = unseen = done = seed = 0
    restarts: list[float] = []
    url = os.environ.get("BENCH_DATABASE_URL", "")
    if not url:
        bench.note("all on SQLite: BENCH_DATABASE_URL is not set")
    while done < kills:
        seed += 1
        count = min(BATCH, kills // 2, kills - done)
        schema = new_schema(url, f"kills_{os.getpid()}_{seed}") if url and seed % 2 == 0 else ""
        verdict = run_batch(count, seed, schema)
        done += count
        runs, starts, unseen = runs + verdict.runs, starts + verdict.starts, unseen + verdict.unseen
        slots += verdict.slots
        restarts += verdict.restarts
        lost, doubled = lost + len(verdict.lost), doubled + len(verdict.doubled)
        bench.note(
            f"seed {seed}: {dict(verdict.faults)}, {verdict.runs} runs, {verdict.slots} slots, {verdict.starts} starts"
        )
        for words in verdict.lost + verdict.doubled:
            bench.note(f"seed {seed}: {words}")
    bench.goal(
        f"lost in {kills} kills ({runs} runs, {slots} slots, {starts} steps started)", "faults", float(lost), 0.0, kills
    )
    bench.goal(f"done twice in {kills} kills", "faults", float(doubled), 0.0, kills)
    bench.figure("runs with a try whose end nobody saw", "runs", float(unseen), n=kills)
    bench.figure("ready again after a kill, median", "s", percentile(restarts, 0.5), n=len(restarts))
    bench.figure("ready again after a kill, p99", "s", percentile(restarts, 0.99), n=len(restarts))


def main() -> None:
    bench = begin("kills", __doc__, parts=("ledger", "moving"))
    if bench.begins("ledger"):
        measure(bench, 20 if bench.quick else 2000)
    if bench.begins("moving"):
        moving(bench, 5)
    bench.finish()


if __name__ == "__main__":
    main()
