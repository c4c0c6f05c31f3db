"""The typed client: `connect()` and `PaddleFlow`, with one attribute for each area of the API.

    with paddleflow.connect() as pf:
        job = pf.jobs.submit(name="hello", command="echo hello")
        for line in job.logs(follow=True):
            print(line, end="")

Everything returns records or raises an error of `paddleflow.errors`. A client may be shared by threads. Areas are
imported when they are first asked for, because each record class costs a millisecond at start-up.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from paddleflow.sdk import contexts
from paddleflow.sdk.records import table
from paddleflow.sdk.transport import LOGIN_HINT, VARIABLE_HINT, Transport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddleflow.sdk.access import Audit, Grants, Secrets, Tokens, Users, WhoAmI
    from paddleflow.sdk.artifacts import Artifacts, Caches
    from paddleflow.sdk.clusters import Clusters
    from paddleflow.sdk.code import Code
    from paddleflow.sdk.files import Files
    from paddleflow.sdk.jobs import Jobs
    from paddleflow.sdk.logs import Logs
    from paddleflow.sdk.pipelines import Pipelines
    from paddleflow.sdk.queues import Flavours, Queues
    from paddleflow.sdk.runs import Runs
    from paddleflow.sdk.scheduler import Scheduler
    from paddleflow.sdk.schedules import Schedules
    from paddleflow.sdk.statistics import Statistics
    from paddleflow.sdk.storages import Storages

_AREAS = {
    "users": ("access", "Users"),
    "grants": ("access", "Grants"),
    "tokens": ("access", "Tokens"),
    "secrets": ("access", "Secrets"),
    "audit": ("access", "Audit"),
    "queues": ("queues", "Queues"),
    "flavours": ("queues", "Flavours"),
    "clusters": ("clusters", "Clusters"),
    "jobs": ("jobs", "Jobs"),
    "code": ("code", "Code"),
    "scheduler": ("scheduler", "Scheduler"),
    "logs": ("logs", "Logs"),
    "statistics": ("statistics", "Statistics"),
    "storages": ("storages", "Storages"),
    "files": ("files", "Files"),
    "pipelines": ("pipelines", "Pipelines"),
    "runs": ("runs", "Runs"),
    "schedules": ("schedules", "Schedules"),
    "artifacts": ("artifacts", "Artifacts"),
    "caches": ("artifacts", "Caches"),
}


class PaddleFlow:
    """A client of one server, as one user."""

    if TYPE_CHECKING:
        users: Users
        grants: Grants
        tokens: Tokens
        secrets: Secrets
        audit: Audit
        queues: Queues
        flavours: Flavours
        clusters: Clusters
        jobs: Jobs
        code: Code
        scheduler: Scheduler
        logs: Logs
        statistics: Statistics
        storages: Storages
        files: Files
        pipelines: Pipelines
        runs: Runs
        schedules: Schedules
        artifacts: Artifacts
        caches: Caches

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    if not TYPE_CHECKING:  # so that a checker knows the areas and nothing beside them

        def __getattr__(self, name: str) -> object:
            if name not in _AREAS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            module, kind = _AREAS[name]
            area: object = getattr(import_module(f"paddleflow.sdk.{module}"), kind)(self.transport)
            setattr(self, name, area)  # asked for once
            return area

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_AREAS})

    def __repr__(self) -> str:
        return f"PaddleFlow({self.server!r})"

    def __enter__(self) -> PaddleFlow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def server(self) -> str:
        return str(self.transport.address)

    def close(self) -> None:
        """Closes the connections. The client may be used again; it then makes new ones."""
        self.transport.close()

    def login(self, username: str, password: str) -> str:
        """A token, used from now on."""
        return self.transport.login(username, password)

    def logout(self) -> None:
        """Ends the token in use."""
        self.transport.call("POST", "/logout")
        self.transport.token = ""

    def version(self) -> Mapping[str, str]:
        """What the server is: gitVersion, gitCommit, buildDate, platform and others, as text."""
        return {key: str(value) for key, value in table(self.transport.call("GET", "/version")).items()}

    def whoami(self) -> WhoAmI:
        found: WhoAmI = import_module("paddleflow.sdk.access").WhoAmI.of(self.transport.call("GET", "/whoami"))
        return found


def connect(
    server: str | None = None,
    *,
    token: str | None = None,
    username: str | None = None,
    password: str | None = None,
    context: str | None = None,
    config: str | Path | None = None,
    timeout: float = 60.0,
    retries: int = 3,
) -> PaddleFlow:
    """A client. Nothing is sent before the first call.

    The server is the one given, or of the context, or of the ini file `config`, or of the environment
    (PADDLEFLOW_SERVER, PADDLEFLOW_TOKEN), or of the current context, or on this machine. With username and password it
    logs in by itself, also when the token has ended. `timeout` is for one answer, `retries` how often a request that
    cannot do harm is sent again.
    """

    def resolved() -> contexts.Context:
        return contexts.resolve(server=server, context=context, config=config)

    found = resolved()
    credentials = (username, password) if username is not None and password is not None else None
    if token is not None or credentials is not None:
        return PaddleFlow(
            Transport(found.server, token=token or "", credentials=credentials, timeout=timeout, retries=retries)
        )
    return PaddleFlow(
        Transport(
            found.server,
            token=found.token,
            credentials=(found.user, found.password) if found.password else None,
            saved=lambda: resolved().token,
            login_hint=VARIABLE_HINT if contexts.token_is_variable(found, context) else LOGIN_HINT,
            timeout=timeout,
            retries=retries,
        )
    )
