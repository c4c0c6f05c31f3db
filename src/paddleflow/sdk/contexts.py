"""Contexts: the servers that a person works with, each with a user and a token, and one of them current.

They live in ``contexts.json`` (mode 0600) in the user's configuration folder: ``{current, contexts: {name: {server,
user, token}}}``. Existing users have a ``paddleflow.ini`` there; it is read where no context is current. The server
writes a ready context ``local`` at its first start through `save_local`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import field, replace
from importlib import import_module
from pathlib import Path

from paddleflow import environment
from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid, NotFound
from paddleflow.sdk import address

FILE = "contexts.json"
INI = "paddleflow.ini"
LOCAL = "local"


@dataclass(frozen=True)
class Context:
    """Where to go, and as whom. A password is only there if it came from an ini file."""

    server: str
    user: str = ""
    token: str = ""
    password: str = ""


@dataclass(frozen=True)
class Contexts:
    """All that is saved."""

    current: str = ""
    by_name: Mapping[str, Context] = field(default_factory=dict)

    def named(self, name: str) -> Context:
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name))
            hint = f"known: {known}" if known else "there is none yet; make one with: paddleflow login"
            raise NotFound(f"context {name!r} is not known", hint=hint)
        return self.by_name[name]


def load(folder: Path | None = None) -> Contexts:
    file = (folder or environment.user_config_folder()) / FILE
    try:
        data = json.loads(file.read_text("utf-8"))
        by_name = {
            name: Context(str(item["server"]), str(item.get("user", "")), str(item.get("token", "")))
            for name, item in data["contexts"].items()
        }
        return Contexts(str(data.get("current") or ""), by_name)
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"contexts in {file} cannot be read: {error}", hint="repair the file or delete it") from error


def store(contexts: Contexts, folder: Path | None = None) -> Path:
    """Replaces the file as a whole; a crash leaves the old one."""
    folder = folder or environment.user_config_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    listed = {
        name: {"server": context.server, "user": context.user, "token": context.token}
        for name, context in contexts.by_name.items()
    }
    file = folder / FILE
    draft = folder / f".{FILE}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        json.dump({"current": contexts.current, "contexts": listed}, out, indent=2)
        out.write("\n")
    draft.replace(file)
    return file


def save(name: str, context: Context, *, current: bool, folder: Path | None = None) -> Path:
    """Adds or replaces a context. It becomes current if told so, or if none is."""
    known = load(folder)
    chosen = name if current or known.current not in known.by_name else known.current
    return store(Contexts(chosen, {**known.by_name, name: context}), folder)


def save_local(server_url: str, user: str, token: str, folder: Path | None = None) -> Path:
    """The ready context of a server on this machine, so that the next command works without a login."""
    return save(LOCAL, Context(server_url, user, token), current=False, folder=folder)


def use(name: str, folder: Path | None = None) -> None:
    known = load(folder)
    known.named(name)
    store(replace(known, current=name), folder)


def delete(name: str, folder: Path | None = None) -> None:
    known = load(folder)
    known.named(name)
    rest = {key: context for key, context in known.by_name.items() if key != name}
    store(Contexts("" if known.current == name else known.current, rest), folder)


def read_ini(file: Path) -> Context:
    """The context in an ini file as existing users have it; Invalid says what is missing."""
    configparser = import_module("configparser")  # only for those who have such a file
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(file.read_text("utf-8"))
        host = parser.get("server", "paddleflow_server_host")
        port = parser.get("server", "paddleflow_server_port", fallback=str(address.DEFAULT_PORT))
        return Context(_joined(host, port), parser.get("user", "name"), "", parser.get("user", "password"))
    except (OSError, ValueError, configparser.Error) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise Invalid(
            f"configuration {file} cannot be used: {cause}",
            hint="it needs [user] name, password and [server] paddleflow_server_host, paddleflow_server_port",
        ) from error


def _joined(host: str, port: str) -> str:
    """Host and port as one address. The host may carry a scheme, as some have it."""
    found = address.parse(host.strip())
    given = host.rpartition("]")[2].rpartition("/")[2] if "://" in host else host
    return str(found if ":" in given else replace(found, port=int(port)))


def resolve(
    *,
    server: str | None = None,
    context: str | None = None,
    config: str | Path | None = None,
    folder: Path | None = None,
) -> Context:
    """Where to go: what is given, then the environment, then the current context, then the ini file, then this machine.

    A server given without a token gets the token of a saved context of the same address.
    """
    environment_server, environment_token = environment.client_environment()
    if context is not None:
        found = load(folder).named(context)
    elif config is not None:
        found = read_ini(Path(config))
    elif server or environment_server:
        found = _saved(server or environment_server, folder)
    else:
        found = _usual(folder)
    if server and (context is not None or config is not None):
        found = replace(found, server=server)
    return replace(found, token=environment_token) if environment_token and context is None else found


def token_is_variable(used: Context, context: str | None) -> bool:
    """Whether what `resolve` answered for this context has the token of PADDLEFLOW_TOKEN, which a login does not change."""
    token = environment.client_environment()[1]
    return context is None and bool(token) and used.token == token


def _saved(server: str, folder: Path | None) -> Context:
    wanted = address.parse(server)
    known = load(folder)
    same = [name for name, item in known.by_name.items() if address.parse(item.server) == wanted]
    name = known.current if known.current in same else next(iter(same), "")
    return known.by_name[name] if name else Context(server)


def _usual(folder: Path | None) -> Context:
    known = load(folder)
    if known.current in known.by_name:
        return known.by_name[known.current]
    ini = (folder or environment.user_config_folder()) / INI
    return read_ini(ini) if ini.is_file() else Context(address.DEFAULT_SERVER)
