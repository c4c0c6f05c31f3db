"""`mount.paddleflow`: what mount(8) calls for lines of /etc/fstab with the type paddleflow.

    s3://bucket/sets  /mnt/sets  paddleflow  endpoint=https://s3.example.com,credentials=/etc/paddleflow/keys,_netdev  0 0

Each option of `paddleflow fs mount` is one here, without its dashes; those of mount(8) itself are left to it. Keys do not belong into
/etc/fstab, which everybody reads: `credentials` names a file with lines such as ``access-key=…``.
"""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import click

from paddleflow.base.names import nearest
from paddleflow.cli.fs_mount import mount
from paddleflow.errors import Forbidden, Invalid, NotFound, PaddleFlowError

#: Options that mount(8) passes on and that mean nothing to a file system, or what is the case anyway.
IGNORED = frozenset(
    {
        "rw", "auto", "noauto", "user", "users", "nouser", "owner", "group", "defaults", "nofail", "_netdev", "dev", "nodev", "suid",
        "nosuid", "exec", "atime", "noatime", "relatime", "diratime", "nodiratime", "async", "sync", "comment",
    }
)  # fmt: skip
_ALIASES = {"ro": "read-only", "allow_other": "allow-other"}
_USAGE = "mount.paddleflow URL DIR [-sfnv] [-o OPTION,…]"


def translate(words: list[str]) -> list[str]:
    """The words of `paddleflow fs mount` for those that mount(8) gives."""
    places: list[str] = []
    given: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-o":
            given += [each for each in next(rest, "").split(",") if each]
        elif word.startswith("-"):
            if set(word[1:]) - set("sfnv"):
                raise Invalid(f"{word} is not an option of mount.paddleflow", hint=_USAGE)
            if "f" in word:
                return []  # a dry run
        else:
            places.append(word)
    if len(places) != 2:
        raise Invalid(f"expected 2 arguments, what to mount and where, found {len(places)}", hint=_USAGE)
    found = ["--url", places[0]] if "://" in places[0] else [places[0]]
    for option in given:
        found += _translate_option(option)
    return [*found, places[1]]


def _translate_option(option: str) -> list[str]:
    name, separator, value = option.partition("=")
    name = _ALIASES.get(name, name)
    if name in IGNORED or name.startswith("x-"):
        return []
    if name == "credentials":
        return [word for line in _read_credentials(Path(value)) for word in _translate_option(line)]
    known = {
        spelling.removeprefix("--"): each for each in mount.params for spelling in each.opts if spelling[:2] == "--"
    }
    wanted = known.get(name.replace("_", "-"))
    if name == "remount":
        raise Invalid("options of a mount cannot be changed while it is mounted", hint="umount it, then mount it again")
    if not isinstance(wanted, click.Option):
        raise Invalid(f"{name!r} is not a mount option", hint=nearest(name, known))
    spelling = f"--{name.replace('_', '-')}"
    if wanted.is_flag and separator:
        raise Invalid(f"option {name} takes no value, {value!r} was given")
    if not wanted.is_flag and not value:
        raise Invalid(f"option {name} needs a value", hint=f"{name}=…")
    return [spelling, value] if separator else [spelling]


def _read_credentials(file: Path) -> list[str]:
    try:
        if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise Forbidden(f"{file} can be read by others", hint=f"chmod 600 {file}")
        lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        raise NotFound(f"{file} cannot be read: {error.strerror}") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def main() -> None:
    try:
        words = translate(sys.argv[1:])
    except PaddleFlowError as error:
        click.echo(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""), err=True)
        sys.exit(1)
    if words:
        from paddleflow.cli.main import root  # after the words are known to be right: it loads the whole command line

        root.main(["fs", "mount", *words], prog_name="paddleflow")
