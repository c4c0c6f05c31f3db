"""The I/O of runs: files read, made and measured on stores, and questions to the cache. Outside of transactions and of turns.

Each answer is a fact for the run's machine. An error of a file is an answer too, with its words; one of the database is not, and
ends the engine's round as any other does. Files are worked on in a `FilePool`, in slices: a huge output delays neither other
runs nor its own run's other steps, says how far it is, and is given up when nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from paddleflow.access.callers import is_root
from paddleflow.base.clock import Clock
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.engine.run_engine import RunEngine, RunFact
from paddleflow.errors import Invalid, PaddleFlowError, Unavailable
from paddleflow.objects.store import ObjectStore
from paddleflow.runs import caches, files
from paddleflow.runs.facts import (
    CacheAnswered,
    Command,
    Fact,
    FilesRead,
    Fingerprints,
    Hit,
    LookUpCache,
    Measurement,
    OutputsPrepared,
    OutputsProgress,
    OutputsRecorded,
    PrepareOutputs,
    ReadFiles,
    RecordOutputs,
)
from paddleflow.runs.fingerprints import OUTPUTS_GONE, OUTPUTS_UNREADABLE, bare_command, fingerprints
from paddleflow.runs.state import Instance, Phase, RunState
from paddleflow.runs.values import Rendered, on_storage, rendered, step_outputs
from paddleflow.storage.file_pool import FilePool, SlicedWork
from paddleflow.storage.model import Storage
from paddleflow.storage.storages import usable_storage
from paddleflow.storage.stores import Stores
from paddleflow.store.database import Database, Tx

IoRequest = tuple[RunState, Command]
FileCommand: TypeAlias = ReadFiles | PrepareOutputs | RecordOutputs
REPORT_EVERY = 5.0  #: seconds between two messages about an output that takes long to measure
log = Log("engine")
TOGETHER = 0.5  #: seconds that questions to the cache wait for each other's files, to be asked at once


@dataclass(frozen=True, slots=True)
class _Question:
    """A step that asks the cache."""

    run: RunState
    item: Instance
    prints: Fingerprints


class _NotWanted(Exception):
    """Nobody waits for an answer any more."""


class RunIO:
    """The I/O of runs for a run engine; `wake` tells it that there are answers."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        stores: Stores,
        pool: FilePool,
        engine: RunEngine,
        wake: Callable[[], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._storages = stores
        self._pool = pool
        self._engine = engine
        self._wake = wake

    async def do(self, requests: Sequence[IoRequest]) -> None:
        """All of them, those that may take long beside each other; a storage is looked up once for all that use it."""
        lookups = [(run, command) for run, command in requests if isinstance(command, LookUpCache)]
        preparing: dict[str, list[FileCommand]] = {}
        runs = {run.id: run for run, _ in requests}
        async with self._stores() as stores, asyncio.TaskGroup() as group:
            if lookups:
                group.create_task(self._look_up(lookups, stores))
            for run, command in requests:
                if isinstance(command, PrepareOutputs):
                    preparing.setdefault(run.id, []).append(command)
                elif isinstance(command, ReadFiles | RecordOutputs):
                    group.create_task(self._with_files(run, [command], stores))
            for name, together in preparing.items():
                group.create_task(self._with_files(runs[name], together, stores))

    def _answer(self, facts: Sequence[RunFact]) -> None:
        if facts:
            self._engine.inbox += facts
            self._wake()

    # ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _with_files(self, run: RunState, commands: Sequence[FileCommand], stores: _Stores) -> None:
        """Commands of one run, one after the other in the pool."""
        known = [(item, each) for each in commands if (item := run.instances.get(each.number)) is not None]
        if not known:
            return
        try:
            store = await stores.find(run, "")
        except Invalid as error:
            self._answer([(run, self._failed(command, error.message)) for _, command in known])
            return
        last = [self._clock.monotonic()]

        def report(done: int) -> None:
            item, command = known[0]
            if not isinstance(command, RecordOutputs):
                return
            if run.instances.get(item.number) is not item or item.phase is not Phase.RECORDING:
                raise _NotWanted
            if self._clock.monotonic() - last[0] >= REPORT_EVERY:
                last[0] = self._clock.monotonic()
                self._answer([(run, OutputsProgress(self._clock.now(), item.number, done))])

        try:
            self._answer(await self._pool.of(run.user).run_in_slices(self._facts(run, known, store), report))
        except _NotWanted:
            return

    def _facts(
        self, run: RunState, known: Sequence[tuple[Instance, FileCommand]], store: ObjectStore
    ) -> SlicedWork[list[RunFact]]:
        found: list[RunFact] = []
        for item, command in known:
            try:
                fact = yield from self._carry_out(run, item, command, store)
            except Exception as error:  # whatever is wrong with the files of one step, the others continue
                fact = self._failed(command, _explain(error, run))
            found.append((run, fact))
        return found

    def _carry_out(self, run: RunState, item: Instance, command: FileCommand, store: ObjectStore) -> SlicedWork[Fact]:
        match command:
            case ReadFiles():
                paths = {name: on_storage(run, path) for name, path in command.paths.items()}
                return FilesRead(self._clock.now(), item.number, files.read_texts(store, paths, command.most))
            case PrepareOutputs():
                files.make_folder(store, run.pipeline.main_fs.sub_path if run.pipeline.main_fs else "")
                outputs = step_outputs(run, item.frame, item.child, item.seq)
                yield from files.make_places(store, [on_storage(run, path) for path in outputs.values()])
                return OutputsPrepared(self._clock.now(), item.number)
            case RecordOutputs():
                return (yield from self._record(run, item, store))

    def _record(self, run: RunState, item: Instance, store: ObjectStore) -> SlicedWork[Fact]:
        """What a step made; one of its outputs that is not there, or cannot be read, is an error that names it."""
        made: dict[str, Measurement] = {}
        faults: list[str] = []
        for name, path in item.outputs.items():
            place = on_storage(run, path)
            try:
                made[name] = yield from files.measure(store, place)
            except Invalid as error:
                faults.append(f"output artifact[{name}] cannot be read: {error.message}")
                continue
            if made[name].kind == files.MISSING:
                faults.append(f"output artifact[{name}] was not written: nothing is at {place} of {store.name}")
        return OutputsRecorded(self._clock.now(), item.number, made, "; ".join(faults))

    def _failed(self, command: FileCommand, message: str) -> Fact:
        now = self._clock.now()
        match command:
            case ReadFiles():
                return FilesRead(now, command.number, {}, message)
            case RecordOutputs():
                return OutputsRecorded(now, command.number, {}, message)
            case PrepareOutputs():
                return OutputsPrepared(now, command.number, message)

    async def open(self, run: RunState, name: str) -> ObjectStore:
        """The store of a storage: the run's main one, or one by its name. `Invalid` when it may not be used."""
        main = run.pipeline.main_fs
        if not name and main is None:
            raise Invalid("the run has no main storage")
        wanted = name or (main.name if main is not None else "")

        def find(tx: Tx) -> Storage | None:
            return usable_storage(tx, run.user, is_root(run.user), wanted)

        storage = await self._database.peek(find)
        if storage is None:
            raise Invalid(f"fs[{wanted}] does not exist for user[{run.user}]")
        try:
            return await self._pool.of(run.user).run(self._storages.open, storage)
        except PaddleFlowError as error:
            raise Invalid(error.message, hint=error.hint) from error

    @asynccontextmanager
    async def _stores(self) -> AsyncIterator[_Stores]:
        stores = _Stores(self)
        try:
            yield stores
        finally:
            stores.close()

    # ── the cache ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _look_up(self, requests: Sequence[IoRequest], stores: _Stores) -> None:
        """Answers for many steps with one query; those whose files take long are asked later."""
        ready: list[_Question] = []
        async with asyncio.TaskGroup() as group:
            pending: dict[asyncio.Task[_Question | None], None] = {}
            for run, command in requests:
                item = run.instances.get(command.number) if isinstance(command, LookUpCache) else None
                if item is None or item.phase is not Phase.LOOKUP:
                    continue
                try:
                    found = rendered(run, item)
                    if found.inputs or item.step.cache.fs_scope:
                        pending[group.create_task(self._read_inputs(run, item, found, stores))] = None
                    else:
                        ready.append(self._question(run, item, found, {}, {}))
                except Exception as error:  # of what a person wrote, or a fault of ours: nothing here asks the database
                    self._answer([(run, self._lookup_failed(item, error, run))])
            while ready or pending:
                if pending:
                    await asyncio.wait(pending, timeout=TOGETHER)
                    if not ready and not any(task.done() for task in pending):
                        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                ready += [asked for task in pending if task.done() and (asked := task.result()) is not None]
                pending = {task: None for task in pending if not task.done()}
                await self._ask(ready, stores, group)
                ready = []

    async def _read_inputs(self, run: RunState, item: Instance, found: Rendered, stores: _Stores) -> _Question | None:
        """The question of a step that reads files; None when it was answered already: one of them cannot be read."""

        def report(_: int) -> None:
            if item.phase is not Phase.LOOKUP:
                raise _NotWanted

        try:
            contents: Mapping[str, str] = {}
            scopes: dict[str, str] = {}
            if found.inputs:
                store = await stores.find(run, "")
                contents = await self._pool.of(run.user).run_in_slices(_contents(run, store, found.inputs), report)
            for scope in item.step.cache.fs_scope:
                store = await stores.find(run, scope.name)
                for path in scope.paths:
                    place = f"{scope.name}:{path}"
                    scopes[place] = await self._pool.of(run.user).run_in_slices(files.signature(store, path), report)
            return self._question(run, item, found, contents, scopes)
        except _NotWanted:
            return None
        except Unavailable:  # of the database; a store's are answers of `files`
            raise
        except Exception as error:
            self._answer([(run, self._lookup_failed(item, error, run))])
            return None

    def _lookup_failed(self, item: Instance, error: Exception, run: RunState) -> CacheAnswered:
        return CacheAnswered(self._clock.now(), item.number, Fingerprints(), None, (), _explain(error, run))

    def _question(
        self, run: RunState, item: Instance, found: Rendered, contents: Mapping[str, str], scopes: Mapping[str, str]
    ) -> _Question:
        self._engine.rendered[run.id, item.number] = found
        command = bare_command(run, item, found)
        return _Question(run, item, fingerprints(run, item, found, command, contents, scopes))

    async def _ask(self, asking: Sequence[_Question], stores: _Stores, group: asyncio.TaskGroup) -> None:
        claims = self._engine.claims
        asking = [each for each in asking if claims.take(each.run, each.item, each.prints)]
        questions = [
            caches.Question(each.prints, each.run.user, each.run.fs_id, each.run.pipeline.name, each.item.full_name,
                            each.item.step.cache.max_expired_time)
            for each in asking
        ]  # fmt: skip
        if not questions:
            return
        facts: list[RunFact] = []
        for each, answer in zip(
            asking, await self._database.read(caches.ask, questions, self._clock.now()), strict=True
        ):
            if any(result.outputs for result in answer.results):
                group.create_task(self._check_outputs(each, answer, stores))
            else:
                facts.append((each.run, self._cache_fact(each, answer)))
        self._answer(facts)

    def _cache_fact(self, asked: _Question, answer: caches.Found) -> CacheAnswered:
        now, number = self._clock.now(), asked.item.number
        if not answer.results:
            return CacheAnswered(now, number, asked.prints, None, answer.misses)
        result = answer.results[0]
        outputs = {name: output.path for name, output in result.outputs.items()}
        return CacheAnswered(now, number, asked.prints, Hit(result.run_id, result.job_id, outputs))

    async def _check_outputs(self, asked: _Question, answer: caches.Found, stores: _Stores) -> None:
        """Answer with the first result whose outputs are as they were when they were made."""
        misses: tuple[str, ...] = ()
        good: tuple[caches.Result, ...] = ()
        for result in answer.results:
            try:
                store = await stores.find(asked.run, "")
                same = await self._pool.of(asked.run.user).run_in_slices(_unchanged(asked.run, store, result.outputs))
            except Invalid:
                misses = (OUTPUTS_UNREADABLE,)
                continue
            if same:
                good = (result,)
                break
            misses = (OUTPUTS_GONE,)
        self._answer([(asked.run, self._cache_fact(asked, caches.Found(good, misses)))])


class _Stores:
    """The stores of storages, each opened once while a batch of requests is done."""

    def __init__(self, io: RunIO) -> None:
        self._io = io
        self._lock = asyncio.Lock()
        self._found: dict[tuple[str, str], ObjectStore | Invalid] = {}

    async def find(self, run: RunState, name: str) -> ObjectStore:
        """As `RunIO.open` says; whoever asks while it is being opened waits for the same answer."""
        key = run.id, name
        async with self._lock:
            if key not in self._found:
                try:
                    self._found[key] = await self._io.open(run, name)
                except Invalid as error:
                    self._found[key] = error
        found = self._found[key]
        if isinstance(found, Invalid):
            raise found
        return found

    def close(self) -> None:
        for found in self._found.values():
            if not isinstance(found, Invalid):
                found.close()


def _explain(error: Exception, run: RunState) -> str:
    """For a person; a fault of the server is logged with its details."""
    if isinstance(error, PaddleFlowError):
        return error.message
    log.error("a file of a run cannot be used", run=run.id, reason="".join(traceback.format_exception(error)))
    return f"a fault of the server: {type(error).__name__}; the server's log has the details"


def _contents(run: RunState, store: ObjectStore, inputs: Mapping[str, str]) -> SlicedWork[dict[str, str]]:
    """Input artifact → hash of what is in it; one that is not there counts as such."""
    found: dict[str, str] = {}
    for name, paths in inputs.items():
        hashes: list[str] = []
        for path in on_storage(run, paths).split(","):
            if path:
                seen = yield from files.measure(store, path)
                hashes.append(seen.hash or seen.kind)
        found[name] = ",".join(hashes)
    return found


def _unchanged(run: RunState, store: ObjectStore, outputs: Mapping[str, caches.Output]) -> SlicedWork[bool]:
    for output in outputs.values():
        seen = yield from files.measure(store, on_storage(run, output.path))
        if not seen.hash or seen.hash != output.hash:  # an output without a hash was never there
            return False
    return True
