"""`paddleflow fs mount`, `umount` and `stats`: the file system's client on this machine.

The file system is imported when a command is called, and only here; stores also in `fs_files`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from paddleflow.cli import output
from paddleflow.cli.fs_files import access_options
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Invalid, PaddleFlowError

_folder = click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")


def _absolute(folder: Path) -> Path:
    """The folder's real place, without touching the folder itself: the mount on it may be dead."""
    return folder.absolute().parent.resolve() / folder.name if folder.name not in ("", "..") else folder.resolve()


@click.command(cls=Command)
@click.argument("places", nargs=-1, required=True, metavar="[FSNAME] DIR")
@click.option("--url", help="What to mount, without a server: file:///data/team, s3://bucket/prefix.")
@click.option("-u", "--username", help="Whose storage FSNAME is; yours if not given.")
@click.option("--read-only", is_flag=True, help="Refuse changes.")
@click.option("--immutable", is_flag=True, help="The source never changes while mounted: fastest; read-only.")
@click.option("--allow-other", is_flag=True, help="Other users of this machine may use the mount, as modes allow.")
@click.option(
    "--ttl", "seconds", type=click.FloatRange(0), help="Seconds until a change made elsewhere is seen: 1; S3: 10."
)
@access_options
@click.option(
    "--cache-dir", "cache_folder", type=click.Path(file_okay=False, path_type=Path), help="S3: where content is cached."
)
@click.option("--cache-size", default="20Gi", show_default=True, help="S3: most bytes that are cached.")
@click.option("--strict", is_flag=True, help="S3: see changes made elsewhere at every open.")
@click.option("--writeback", is_flag=True, help="S3: close and fsync wait for this machine's disk, not for the store.")
@click.option("--plain", is_flag=True, help="S3: objects carry no modes, owners, links: list without asking for them.")
@click.option("--passthrough/--no-passthrough", default=True, help="Let the kernel read local files by itself.")
@click.option("--threads", type=click.IntRange(1, 64), default=16, show_default=True, help="Requests answered at once.")
@click.option("--foreground", is_flag=True, help="Stay here until unmounted or Ctrl-C.")
@pass_session
def mount(
    session: Session,
    /,
    places: tuple[str, ...],
    url: str | None,
    username: str | None,
    foreground: bool,
    cache_folder: Path | None,
    cache_size: str,
    **rest: Any,
) -> None:
    """Mount a storage, or a URL, on a folder of this machine. As root or, with fusermount3, as anybody.

    \b
    Examples:
      paddleflow fs mount --url file:///data/team /mnt/team
      paddleflow fs mount --url file:///data/set1 --immutable /mnt/set1
      paddleflow fs mount team /mnt/team
      AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… paddleflow fs mount --url s3://bucket/sets --endpoint https://s3.example /mnt/sets
    """
    from paddleflow.base.quantity import parse_quantity
    from paddleflow.fs.mount import MountOptions, run_mount, start_mount
    from paddleflow.objects.urls import Access

    if len(places) != (1 if url else 2):
        raise click.UsageError("name a storage and a folder, or --url and a folder")
    names = ("endpoint", "region", "access_key", "secret_key", "token")
    access: dict[str, Any] = {name: rest.pop(name) or "" for name in names}
    options = MountOptions(
        url=url or _storage_url(session, places[0], username),
        folder=_absolute(Path(places[-1])),
        access=Access(**access),
        cache_folder=cache_folder and cache_folder.absolute(),
        cache_size=parse_quantity(cache_size),
        **rest,
    )
    if foreground:
        run_mount(options)
    else:
        pid = start_mount(options)
        output.done(
            session,
            f"{options.url} mounted on {options.folder}",
            str(options.folder),
            lambda: {"folder": str(options.folder), "pid": pid},
        )


def _storage_url(session: Session, name: str, username: str | None) -> str:
    storage = session.client.storages.get(name, user=username)
    if storage.type != "local":
        raise Invalid(f"storage {name} is of type {storage.type}; only type local can be mounted by name")
    return f"file://{storage.sub_path}"


@click.command(cls=Command)
@_folder
@click.option("-f", "--force", is_flag=True, help="Also while it is in use: it goes when the last user closes it.")
@pass_session
def umount(session: Session, folder: Path, force: bool) -> None:
    """Unmount a folder."""
    from paddleflow.fs.device import unmount

    where = _absolute(folder)
    pid = _pid_behind(where)
    unmount(where, force=force)
    if pid and not force:
        _wait_for(pid)
    output.done(session, f"{where} unmounted", str(where))


def _pid_behind(folder: Path) -> int | None:
    from paddleflow.fs.session import ask_stats

    try:
        pid = ask_stats(folder)["pid"]
    except PaddleFlowError:
        return None
    return pid if isinstance(pid, int) else None


def _wait_for(pid: int, seconds: float = 30.0) -> None:
    """Until the process behind the mount has ended, so that a mount right afterwards finds nothing in its way."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and Path(f"/proc/{pid}").exists():
        time.sleep(0.01)


@click.command(cls=Command)
@_folder
@click.option("--watch", is_flag=True, help="Again every second, as top does.")
@pass_session
def stats(session: Session, folder: Path, watch: bool) -> None:
    """Show what a mount did: requests with their times, and how files were opened."""
    from paddleflow.fs.session import ask_stats

    where = _absolute(folder)
    while True:
        found = ask_stats(where)
        if session.output in output.MACHINE:
            output.print_data(session, found)
        else:
            if watch:
                click.clear()
            _show_stats(session, found)
        if not watch:
            return
        time.sleep(1)


def _show_stats(session: Session, found: dict[str, object]) -> None:
    ways, tree, requests = found["opens"], found["tree"], found["requests"]
    assert isinstance(ways, dict)
    assert isinstance(tree, dict)
    assert isinstance(requests, dict)
    allowed = "no open at all" if found["no_open"] else "passthrough" if found["passthrough"] else "kept page cache"
    click.echo(f"{found['source']} on {found['mount']}, process {found['pid']}, FUSE {found['protocol']}")
    click.echo(f"files are opened by: {allowed}; so far: {_listed(ways) or 'none'}")
    click.echo(f"tree: {_listed(tree)}")
    rows = [
        [name, each["count"], f"{each['seconds']:.3f}", f"{1e6 * each['seconds'] / max(1, each['count']):.0f}"]
        for name, each in sorted(requests.items(), key=lambda item: -float(item[1]["seconds"]))
    ]
    output.show_rows(session, ["operation", "count", "seconds", "us each"], rows)


def _listed(words: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in words.items())
