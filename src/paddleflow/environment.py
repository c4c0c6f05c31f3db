"""Variables of this process that are no settings of the server: folders of a person, proxies, what the client is told.

With `settings` the only reader of the environment. Apart from it because every command loads this, and classes cost
milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PREFIX = "PADDLEFLOW_"


def inherited(names: str) -> dict[str, str]:
    """The server's own variables that jobs see too."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    return {name: os.environ[name] for name in wanted if name in os.environ}


def user_data_folder() -> Path:
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "paddleflow"


def user_config_folder() -> Path:
    """Where the client keeps its contexts: ``~/.paddleflow``, as existing users have it."""
    given = os.environ.get(f"{PREFIX}HOME")
    return Path(given).expanduser() if given else Path.home() / ".paddleflow"


def client_environment() -> tuple[str, str]:
    """(PADDLEFLOW_SERVER, PADDLEFLOW_TOKEN): the address and token that win over a saved context; empty: not set."""
    return os.environ.get(f"{PREFIX}SERVER", ""), os.environ.get(f"{PREFIX}TOKEN", "")


def whole_environment() -> dict[str, str]:
    """All variables of this process, for the command that it becomes."""
    return dict(os.environ)


def caller_environment() -> dict[str, str]:
    """What a job that runs in the caller's own folder is given of the caller's shell: where programs are."""
    return {name: os.environ[name] for name in ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)}


def proxy_environment(environ: Mapping[str, str] | None = None) -> tuple[str, str, str]:
    """(HTTP_PROXY, HTTPS_PROXY, NO_PROXY), in upper or lower case, for the client library; empty: not set."""
    env = os.environ if environ is None else environ
    plain, secure, bypassed = (
        env.get(name) or env.get(name.lower(), "") for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    )
    return plain, secure, bypassed


def replace_variable(name: str, value: str | None) -> str | None:
    """Set a variable of this process for a foreign library that reads it, or take it away; what it was before."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    return before
