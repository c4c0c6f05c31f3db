"""The values of secrets, filled into launches at the last moment: rows, events and boards hold names only.

A job whose secret is gone when it starts ends with words. Called by `cluster_engine` for launches that name secrets; others cost
nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paddleflow.access import secrets
from paddleflow.base.ids import parse_attempt
from paddleflow.engine.launch import PreparedLaunch
from paddleflow.errors import PaddleFlowError
from paddleflow.runtimes.runtime import Ended, Launch
from paddleflow.store.database import Database
from paddleflow.store.encryption import Keyring


async def reveal(
    database: Database, keyring: Keyring, prepared: Sequence[PreparedLaunch], now: float
) -> tuple[list[Launch], list[Ended]]:
    """The launches that can be started, and the ends of those that cannot."""
    wanted: dict[str, set[str]] = {}
    for item in prepared:
        if item.secrets:
            wanted.setdefault(_job(item.launch), set()).update(use.name for use in item.secrets)
    given = await database.write(secrets.give, wanted) if wanted else {}
    launches: list[Launch] = []
    ended: list[Ended] = []
    for item in prepared:
        try:
            launches.append(_revealed(item, given.get(_job(item.launch), {}), keyring) if item.secrets else item.launch)
        except PaddleFlowError as error:
            ended.append(Ended(item.launch.attempt, now, None, error.message))
    return launches, ended


def _job(launch: Launch) -> str:
    return parse_attempt(launch.attempt)[0]


def _revealed(item: PreparedLaunch, given: dict[str, secrets.SealedValue], keyring: Keyring) -> Launch:
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    for use in item.secrets:
        sealed = given.get(use.name)
        if sealed is None:
            raise PaddleFlowError(f"secret[{use.name}] was deleted before the job started")
        text = sealed.open(keyring)
        if use.env:
            env[use.env] = text
        if use.file:
            files[use.file] = text
    return replace(item.launch, secret_env=env, secret_files=files)
