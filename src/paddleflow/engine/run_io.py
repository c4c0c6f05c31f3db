"""RunIO of runs: files read and made on storages, and questions to the cache. Outside of transactions and of turns.

Each answer is a fact for the run's machine. An error of a file is an answer too; one of the database is not, and ends the
engine's round as any other does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from paddleflow.access.callers import is_root
from paddleflow.base.clock import Clock
from paddleflow.engine.run_engine import RunEngine, RunFact
from paddleflow.errors import Invalid, PaddleFlowError
from paddleflow.runs import caches, files
from paddleflow.runs.facts import (
    CacheAnswered,
    Command,
    Fact,
    FilesRead,
    Fingerprints,
    Hit,
    LookUpCache,
    OutputsPrepared,
    OutputsRecorded,
    PrepareOutputs,
    ReadFiles,
    RecordOutputs,
)
from paddleflow.runs.fingerprints import OUTPUTS_GONE, bare_command, fingerprints
from paddleflow.runs.state import Instance, Phase, RunState
from paddleflow.runs.values import on_storage, rendered, step_outputs
from paddleflow.storage.places import check_folder
from paddleflow.storage.storages import usable_storage
from paddleflow.store.database import Database, Tx

T = TypeVar("T")
IoRequest = tuple[RunState, Command]
FileCommand = ReadFiles | PrepareOutputs | RecordOutputs


@dataclass(slots=True)
class _Asking:
    """A step that asks the cache."""

    run: RunState
    item: Instance
    prints: Fingerprints


class RunIO:
    """The I/O of runs for a run engine; `wake` tells it that there are answers."""

    def __init__(
        self, database: Database, clock: Clock, data: Path, engine: RunEngine, wake: Callable[[], None]
    ) -> None:
        self._database = database
        self._clock = clock
        self._data = data
        self._engine = engine
        self._wake = wake

    async def do(self, requests: Sequence[IoRequest]) -> None:
        """All of them, those that may take long beside each other; a storage is looked up once for all that use it."""
        asking = [(run, command) for run, command in requests if isinstance(command, LookUpCache)]
        making: dict[str, list[FileCommand]] = {}
        runs = {run.id: run for run, _ in requests}
        folders = _Folders(self)
        async with asyncio.TaskGroup() as group:
            if asking:
                group.create_task(self._look_up(asking, folders))
            for run, command in requests:
                if isinstance(command, PrepareOutputs):
                    making.setdefault(run.id, []).append(command)
                elif isinstance(command, ReadFiles | RecordOutputs):
                    group.create_task(self._with_files(run, [command], folders))
            for name, together in making.items():
                group.create_task(self._with_files(runs[name], together, folders))

    def _answer(self, facts: Sequence[RunFact]) -> None:
        if facts:
            self._engine.inbox += facts
            self._wake()

    # ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _with_files(self, run: RunState, commands: Sequence[FileCommand], folders: _Folders) -> None:
        """RunIO of one run, one after the other in a thread."""
        known = [(item, each) for each in commands if (item := run.instances.get(each.number)) is not None]
        if not known:
            return

        def facts(folder: Path) -> list[RunFact]:
            return [(run, self._fact(run, item, command, folder)) for item, command in known]

        try:
            folder = await folders.find(run, "")
        except Invalid as error:
            self._answer([(run, self._failed(command, error.message)) for _, command in known])
        else:
            self._answer(await asyncio.to_thread(facts, folder))

    def _fact(self, run: RunState, item: Instance, command: FileCommand, folder: Path) -> Fact:
        try:
            return self._file_request(run, item, command, folder)
        except Invalid as error:
            return self._failed(command, error.message)

    def _file_request(self, run: RunState, item: Instance, command: Command, folder: Path) -> Fact:
        match command:
            case ReadFiles():
                paths = {name: on_storage(run, path) for name, path in command.paths.items()}
                return FilesRead(self._clock.now(), item.number, files.read_texts(folder, paths, command.most))
            case PrepareOutputs():
                files.make_folder(folder, run.pipeline.main_fs.sub_path.strip("/") if run.pipeline.main_fs else "")
                outputs = step_outputs(run, item.frame, item.child, item.seq)
                files.make_places(folder, [on_storage(run, path) for path in outputs.values()])
                return OutputsPrepared(self._clock.now(), item.number)
            case _:
                made = {name: files.measure(folder, on_storage(run, path)) for name, path in item.outputs.items()}
                return OutputsRecorded(self._clock.now(), item.number, made)

    def _failed(self, command: Command, message: str) -> Fact:
        now = self._clock.now()
        match command:
            case ReadFiles():
                return FilesRead(now, command.number, {}, message)
            case RecordOutputs():
                return OutputsRecorded(now, command.number, {})
            case _:
                assert isinstance(command, PrepareOutputs)
                return OutputsPrepared(now, command.number, message)

    async def folder(self, run: RunState, name: str) -> Path:
        """The folder of a storage: the run's main one, or one by its name. `Invalid` when it may not be used."""
        main = run.pipeline.main_fs
        if not name and main is None:
            raise Invalid("the run has no main storage")
        wanted = name or (main.name if main is not None else "")

        def find(tx: Tx) -> tuple[str, str, bool] | None:
            found = usable_storage(tx, run.user, is_root(run.user), wanted)
            return None if found is None else (found.folder, found.user, found.confined)

        place = await self._database.peek(find)
        if place is None:
            raise Invalid(f"fs[{wanted}] does not exist for user[{run.user}]")
        path, owner, confined = place
        try:
            return await asyncio.to_thread(check_folder, path, data=self._data, user=owner, confined=confined)
        except PaddleFlowError as error:
            raise Invalid(error.message, hint=error.hint) from error

    # ── the cache ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _look_up(self, requests: Sequence[IoRequest], folders: _Folders) -> None:
        """Answers for many steps with one look at the database."""
        asking: list[_Asking] = []
        facts: list[RunFact] = []
        for run, command in requests:
            item = run.instances.get(command.number) if isinstance(command, LookUpCache) else None
            if item is None or item.phase is not Phase.LOOKUP:
                continue
            try:
                asking.append(await self._printed(run, item, folders))
            except Invalid as error:
                facts.append(
                    (run, CacheAnswered(self._clock.now(), item.number, Fingerprints(), None, (), error.message))
                )
        claims = self._engine.claims
        asking = [each for each in asking if claims.take(each.run, each.item, each.prints)]
        questions = [
            caches.Question(each.prints, each.run.user, each.run.fs_id, each.run.pipeline.name, each.item.full_name,
                            each.item.step.cache.max_expired_time)
            for each in asking
        ]  # fmt: skip
        if questions:
            found = await self._database.read(caches.ask, questions, self._clock.now())
            for each, answer in zip(asking, found, strict=True):
                facts.append((each.run, await self._cache_fact(each, answer, folders)))
        self._answer(facts)

    async def _printed(self, run: RunState, item: Instance, folders: _Folders) -> _Asking:
        """The step with its fingerprints; the files it reads are looked at in a thread, if there are any."""
        found = rendered(run, item)
        contents: Mapping[str, str] = {}
        scopes: dict[str, str] = {}
        if found.inputs:
            folder = await folders.find(run, "")
            contents = await asyncio.to_thread(_contents, run, folder, found.inputs)
        for scope in item.step.cache.fs_scope:
            folder = await folders.find(run, scope.name)
            for path in scope.paths:
                scopes[f"{scope.name}:{path}"] = await asyncio.to_thread(files.signature, folder, path)
        self._engine.rendered[run.id, item.number] = found
        command = bare_command(run, item, found)
        return _Asking(run, item, fingerprints(run, item, found, command, contents, scopes))

    async def _cache_fact(self, asking: _Asking, answer: caches.Found, folders: _Folders) -> CacheAnswered:
        now, number = self._clock.now(), asking.item.number
        misses = answer.misses
        for row in answer.rows:
            outputs = json.loads(row["outputs"])
            if not outputs or await self._still_there(asking.run, outputs, folders):
                hit = Hit(row["run_id"], row["job_id"], {name: path for name, (path, _) in outputs.items()})
                return CacheAnswered(now, number, asking.prints, hit)
            misses = (OUTPUTS_GONE,)
        return CacheAnswered(now, number, asking.prints, None, misses)

    async def _still_there(self, run: RunState, outputs: Mapping[str, Sequence[str]], folders: _Folders) -> bool:
        """Whether outputs are as they were when they were made."""
        folder = await folders.find(run, "")

        def same() -> bool:
            return all(files.measure(folder, on_storage(run, path)).hash == before for path, before in outputs.values())

        return await asyncio.to_thread(same)


class _Folders:
    """The folders of storages, each looked up once while a batch of requests is done."""

    def __init__(self, io: RunIO) -> None:
        self._io = io
        self._lock = asyncio.Lock()
        self._found: dict[tuple[str, str], Path | Invalid] = {}

    async def find(self, run: RunState, name: str) -> Path:
        """As `RunIO.folder` says; whoever asks while it is being looked up waits for the same answer."""
        key = run.id, name
        async with self._lock:
            if key not in self._found:
                try:
                    self._found[key] = await self._io.folder(run, name)
                except Invalid as error:
                    self._found[key] = error
        found = self._found[key]
        if isinstance(found, Invalid):
            raise found
        return found


def _contents(run: RunState, folder: Path, inputs: Mapping[str, str]) -> dict[str, str]:
    """Input artifact → hash of what is in it."""
    return {
        name: ",".join(files.measure(folder, path).hash for path in on_storage(run, paths).split(",") if path)
        for name, paths in inputs.items()
    }
