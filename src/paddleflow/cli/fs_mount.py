"""`paddleflow fs mount`, `umount` and `stats`: the file system's client on this machine.

The file system is imported when a command is called, and only here; stores also in `fs_files`.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paddleflow.cli import output
from paddleflow.cli.fs_files import read_properties, store_options, take_properties
from paddleflow.cli.lazy import Command, byte_count, pair_each
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import PaddleFlowError

if TYPE_CHECKING:
    from paddleflow.fs.options import MountOptions
    from paddleflow.objects.links import LinkTarget

ACCESS = ("endpoint", "region", "access_key", "secret_key", "token")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_folder = click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")


def absolute(folder: Path) -> Path:
    """The folder's real place, without touching the folder itself: the mount on it may be dead."""
    return folder.absolute().parent.resolve() / folder.name if folder.name not in ("", "..") else folder.resolve()


@click.command(cls=Command)
@click.argument("places", nargs=-1, required=True, metavar="[FSNAME] DIR")
@click.option(
    "--url",
    help="URL to mount, without a server: file:///data/team, s3://bucket/prefix, sftp://host/path, hdfs://host/path.",
)
@click.option("-u", "--username", help="Owner of the storage FSNAME. [default: yourself]")
@click.option("--read-only", is_flag=True, help="Mount read-only.")
@click.option(
    "--immutable", is_flag=True, help="Read-only, for a source that does not change while it is mounted: fastest."
)
@click.option(
    "--allow-other", is_flag=True, help="Let other users of this machine use the mount, within file permissions."
)
@click.option("--noexec", is_flag=True, help="Programs on the mount cannot be executed.")
@click.option(
    "--ttl",
    "seconds",
    type=click.FloatRange(0),
    help="Seconds until changes made elsewhere become visible. [default: 1; S3: 10]",
)
@store_options
@click.option(
    "--link",
    "links",
    multiple=True,
    callback=pair_each,
    help="PATH=URL: another store at a path inside the mount. It gets those of the options that its type has. Repeatable.",
)
@click.option(
    "--cache-dir",
    "cache_folders",
    multiple=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Stores: cache folder; repeat it to use several disks.",
)
@click.option(
    "--cache-size", default="20Gi", show_default=True, callback=byte_count, help="Stores: maximum size of the cache."
)
@click.option(
    "--free-space",
    type=click.FloatRange(0, 90),
    default=5.0,
    show_default=True,
    help="Stores: percentage of each cache disk to leave free.",
)
@click.option(
    "--meta",
    type=click.Choice(["disk", "memory"]),
    default="disk",
    show_default=True,
    help="Stores: where names and attributes are kept; on disk, the next mount reuses them.",
)
@click.option("--strict", is_flag=True, help="Stores: check for changes made elsewhere at every open.")
@click.option(
    "--writeback", is_flag=True, help="Stores: close and fsync wait for the local disk only; upload in the background."
)
@click.option(
    "--plain", is_flag=True, help="Stores: objects have no modes, owners or links; list faster by not asking for them."
)
@click.option(
    "--bandwidth",
    callback=byte_count,
    help="Stores: maximum bytes per second in both directions, such as 50M. [default: unlimited]",
)
@click.option(
    "--requests",
    type=click.FloatRange(0, min_open=True),
    help="Stores: maximum requests per second. [default: unlimited]",
)
@click.option("--passthrough/--no-passthrough", default=True, help="Let the kernel read cached files directly.")
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=16,
    show_default=True,
    help="Number of requests handled in parallel.",
)
@click.option("--foreground", is_flag=True, help="Stay in the foreground until unmounted or Ctrl-C.")
@pass_session
def mount(
    session: Session,
    /,
    places: tuple[str, ...],
    url: str | None,
    username: str | None,
    foreground: bool,
    cache_folders: tuple[Path, ...],
    free_space: float,
    meta: str,
    bandwidth: int | None,
    requests: float | None,
    links: dict[str, str] | None,
    properties: dict[str, str] | None,
    **rest: Any,
) -> None:
    """Mount a storage or a URL on a folder of this machine. Accounts other than root need fusermount3.

    \b
    Examples:
      paddleflow fs mount --url file:///data/team /mnt/team
      paddleflow fs mount --url file:///data/set1 --immutable /mnt/set1
      paddleflow fs mount team /mnt/team
      paddleflow fs mount --url sftp://files.example/data -o user=ada -o privateKey=@~/.ssh/id_ed25519 /mnt/data
      AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… paddleflow fs mount --url s3://bucket/sets --endpoint https://s3.example /mnt/sets
    """
    from paddleflow.fs.background import start_mount
    from paddleflow.fs.options import MountOptions
    from paddleflow.objects.urls import parse_url

    if len(places) != (1 if url else 2):
        raise click.UsageError("name a storage and a folder, or --url and a folder")
    access = {**{name: rest[name] for name in ACCESS}, "properties": properties}
    take_properties(rest)
    folder, note = absolute(Path(places[-1])), ""
    if url:
        found = _of_type(url, access) if links else read_properties(parse_url(url).scheme, access)
    else:
        url, found, note = _place_of(session, places[0], username, folder, rest["read_only"] or rest["immutable"])
    options = MountOptions(
        url=url,
        folder=folder,
        properties=found,
        links=[_link(path, target, access) for path, target in (links or {}).items()],
        cache_folder=cache_folders[0].absolute() if cache_folders else None,
        more_cache_folders=tuple(each.absolute() for each in cache_folders[1:]),
        free_space=free_space / 100,
        keep_metadata=meta == "disk",
        bandwidth=bandwidth or 0,
        requests=requests or 0.0,
        **rest,
    )
    if foreground:
        _stay(options)
    else:
        pid, where = start_mount(options), str(options.folder)
        output.done(session, f"{url} mounted on {where}{note}", where, lambda: {"folder": where, "pid": pid})


def _stay(options: MountOptions) -> None:
    from paddleflow.fs.mount import run_mount

    run_mount(options)


def _place_of(
    session: Session, name: str, username: str | None, folder: Path, read_only: bool
) -> tuple[str, dict[str, str], str]:
    """URL, properties, and what the user should know: a folder of this very machine is mounted itself, all else through the server."""
    client = session.client
    storage, server = client.storages.get(name, user=username), client.transport.address
    if storage.type == "local" and server.host in _LOOPBACK and Path(storage.sub_path).is_dir():
        return f"file://{storage.sub_path}", {}, ""
    node = socket.gethostname()
    grant = client.storages.start_mount(name, node=node, folder=str(folder), read_only=read_only, user=username)
    host = f"[{server.host}]" if ":" in server.host else server.host
    properties = {"token": grant.token, "mount": grant.id, "tls": str(server.secure).lower(), "prefix": server.prefix}
    note = "\nfiles pass through the server; this machine got a token for them, and no key of the store"
    return f"pfs://{host}:{server.port}/{grant.storage}", properties, note


def _link(path: str, url: str, access: dict[str, Any]) -> LinkTarget:
    from paddleflow.objects.links import LinkTarget
    from paddleflow.objects.store import check_key

    return LinkTarget(check_key(path.strip("/")), url, _of_type(url, access))


def _of_type(url: str, access: dict[str, Any]) -> dict[str, str]:
    """Of all properties those that a store of this type has: with links, the rest is for the others."""
    from paddleflow.objects.urls import SCHEMES, parse_url

    scheme = parse_url(url).scheme
    known = {each.name for each in SCHEMES[scheme].properties}
    return {name: value for name, value in read_properties(scheme, access).items() if name in known}


@click.command(cls=Command)
@_folder
@click.option(
    "-f", "--force", is_flag=True, help="Detach it even if it is in use; it ends when the last user closes it."
)
@pass_session
def umount(session: Session, folder: Path, force: bool) -> None:
    """Unmount a folder."""
    from paddleflow.fs.device import unmount

    where = absolute(folder)
    pids = _pids_behind(where)
    unmount(where, force=force)
    left = [] if force else _wait_for(pids)
    output.done(session, f"{where} unmounted{_going_on(where, left)}", str(where))


def _going_on(folder: Path, pids: list[int]) -> str:
    from paddleflow.fs.background import log_path

    if not pids:
        return ""
    return f"; process {pids[0]} goes on: what was written is still being sent (see {log_path(folder)})"


def _pids_behind(folder: Path) -> list[int]:
    """Supervisor and worker."""
    from paddleflow.fs.control import ask_stats, find_processes

    try:
        found = ask_stats(folder)
    except PaddleFlowError:
        return find_processes(folder)
    return [int(str(found[name])) for name in ("pid", "worker")]


def _wait_for(pids: list[int], seconds: float = 30.0) -> list[int]:
    """Until the processes behind the mount have ended, so that a mount right afterwards finds nothing in its way; those that have not."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if not has_ended(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def has_ended(pid: int) -> bool:
    """Also if nobody has asked how: in many containers process 1 never does."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@click.command(cls=Command)
@_folder
@pass_session
def reload(session: Session, folder: Path) -> None:
    """Upgrade a mount to the installed version while it is in use."""
    from paddleflow.fs.background import reload_mount

    where = absolute(folder)
    reload_mount(where)
    output.done(session, f"{where} is served by the program installed now", str(where))


@click.command(cls=Command)
@_folder
@click.option("-w", "--watch", is_flag=True, help="Redraw every second until Ctrl-C, with the figures of that second.")
@pass_session
def stats(session: Session, folder: Path, watch: bool) -> None:
    """Show statistics of a mount: requests, latencies, and how files were opened."""
    from paddleflow.fs.control import ask_stats

    where = absolute(folder)
    found = ask_stats(where)
    if not watch:
        output.print_data(session, found) if session.output in output.MACHINE else _show_stats(session, found)
        return
    before = found

    def show() -> None:
        nonlocal before
        now = ask_stats(where)
        if session.output in output.MACHINE:
            click.echo(output.line(session, [], [], now))
        else:
            _show_rates(session, before, now)
        before = now

    time.sleep(1)
    output.repeat(show, 1.0)


def _show_rates(session: Session, before: dict[str, Any], now: dict[str, Any]) -> None:
    """What happened between two moments a second apart, as top shows it."""
    tree, then = now["tree"], before["tree"]
    hits, misses = (tree.get(name, 0) - then.get(name, 0) for name in ("hits", "misses"))
    moved = {name: now["bytes"][name] - before["bytes"][name] for name in ("read", "written")}
    fetched = tree.get("bytes fetched", 0) - then.get("bytes fetched", 0)
    click.echo(f"{now['source']} on {now['mount']}, process {now['worker']}, {now['restarts']} restarts")
    click.echo(
        f"read {output.size(moved['read'])}/s, written {output.size(moved['written'])}/s, "
        f"from the store {output.size(fetched)}/s"
    )
    if "hits" in tree:
        share = f"{100 * hits // (hits + misses)}%" if hits + misses else "-"
        cached = f"{tree['files cached']} files, {output.size(tree['bytes cached'])}"
        click.echo(f"hits {share} ({hits} of {hits + misses} opens), cached {cached}, waiting {tree['waiting']}")
    rows = []
    for name, each in now["requests"].items():
        earlier = before["requests"].get(name, {"count": 0, "seconds": 0.0})
        count, seconds = each["count"] - earlier["count"], each["seconds"] - earlier["seconds"]
        if count > 0:
            rows.append([name, count, f"{1e6 * seconds / count:.0f}", each["count"]])
    rows.sort(key=lambda row: -int(row[1]))
    output.show_rows(session, ["operation", "a second", "us each", "so far"], rows, empty="no requests")


def _show_stats(session: Session, found: dict[str, object]) -> None:
    ways, tree, requests = found["opens"], found["tree"], found["requests"]
    assert isinstance(ways, dict)
    assert isinstance(tree, dict)
    assert isinstance(requests, dict)
    allowed = "no open at all" if found["no_open"] else "passthrough" if found["passthrough"] else "kept page cache"
    click.echo(
        f"{found['source']} on {found['mount']}, process {found['worker']} of {found['pid']}, FUSE {found['protocol']}"
    )
    click.echo(f"files are opened by: {allowed}; so far: {_listed(ways) or 'none'}")
    store = tree.get("store", {})
    click.echo(f"tree: {_listed({name: value for name, value in tree.items() if name != 'store'})}")
    output.show_rows(
        session, ["operation", "count", "seconds", "us each"], [_row(*item) for item in _slowest(requests)]
    )
    if store:
        click.echo()
        rows = [[*_row(*item), item[1]["failed"]] for item in _slowest(store)]
        output.show_rows(session, ["of the store", "count", "seconds", "us each", "failed"], rows)


def _slowest(operations: dict[str, dict[str, float]]) -> list[tuple[str, dict[str, float]]]:
    return sorted(operations.items(), key=lambda item: -item[1]["seconds"])


def _row(name: str, each: dict[str, float]) -> list[object]:
    return [name, each["count"], f"{each['seconds']:.3f}", f"{1e6 * each['seconds'] / max(1, each['count']):.0f}"]


def _listed(words: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in words.items())
