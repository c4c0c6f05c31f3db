"""A mounted bucket whose network, server, keys or bucket fail: the program gets an error or waits, and nothing that was acknowledged is lost."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from paddleflow.objects.s3 import Bucket, S3Store
from tests.mounts import mounted_bucket, needs_fuse
from tests.patience import PATIENCE, eventually
from tests.s3_servers import KEYS, S3Server, versitygw
from tests.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = [needs_fuse, pytest.mark.timeout(180)]


@pytest.fixture
def server() -> Iterator[S3Server]:
    with versitygw() as made:
        yield made


@pytest.fixture
def proxy(server: S3Server) -> Iterator[TcpProxy]:
    with tcp_proxy(int(server.endpoint.rpartition(":")[2])) as made:
        yield made


def test_connections_that_are_cut_cost_nobody_an_error(server: S3Server, proxy: TcpProxy, tmp_path: Path) -> None:
    bucket = server.bucket()
    store = S3Store(bucket)
    content = os.urandom(12_000_000)
    store.write("large", content)
    with mounted_bucket(replace(bucket, endpoint=f"http://127.0.0.1:{proxy.port}"), tmp_path) as mount:
        proxy.bytes_left = 3_000_000
        assert (mount.folder / "large").read_bytes() == content
        proxy.bytes_left = -1
        for number in range(5):
            proxy.cut()
            (mount.folder / f"new-{number}").write_bytes(content[:100_000])
        assert {each.key for each in store.list_entries()} == {"large"} | {f"new-{number}" for number in range(5)}
        assert mount.stats()["internal_errors"] == 0
    store.close()


def http_error(status: str, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>{code} for tests</Message></Error>"
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


def test_a_storm_of_503_is_waited_for(server: S3Server, proxy: TcpProxy, tmp_path: Path) -> None:
    bucket = server.bucket()
    store = S3Store(bucket)
    store.write("there", b"content")
    with mounted_bucket(replace(bucket, endpoint=f"http://127.0.0.1:{proxy.port}"), tmp_path) as mount:
        for work in (
            lambda: (mount.folder / "there").read_bytes() == b"content",
            lambda: (mount.folder / "new").write_bytes(b"made") == 4,
        ):
            proxy.answered, proxy.answers = 0, http_error("503 Slow Down", "SlowDown")
            proxy.cut()
            with ThreadPoolExecutor(1) as pool:
                done = pool.submit(work)
                eventually(lambda: proxy.answered > 1, "the store is asked again")
                proxy.answers = b""
                assert done.result(timeout=PATIENCE)
        assert store.read("new", size=10) == b"made"
        assert mount.stats()["internal_errors"] == 0


def test_a_storm_of_403_is_said_at_once_and_passes(server: S3Server, proxy: TcpProxy, tmp_path: Path) -> None:
    """Keys that a store refuses are refused again: programs get EACCES, not a wait. With the storm it is over."""
    bucket = server.bucket()
    store = S3Store(bucket)
    store.write("there", b"content")
    with mounted_bucket(replace(bucket, endpoint=f"http://127.0.0.1:{proxy.port}"), tmp_path, "--ttl", "0") as mount:
        for code in ("AccessDenied", "ExpiredToken"):
            proxy.answers = http_error("403 Forbidden", code)
            proxy.cut()
            for work in (
                lambda: (mount.folder / "there").read_bytes(),
                lambda: (mount.folder / "new").write_bytes(b"x"),
            ):
                with pytest.raises(PermissionError):
                    work()
        proxy.answers = b""
        assert (mount.folder / "there").read_bytes() == b"content"
        (mount.folder / "new").write_bytes(b"made")
        assert store.read("new", size=10) == b"made"
        assert mount.stats()["internal_errors"] == 0


def test_with_writeback_a_refused_file_is_sent_when_the_storm_is_over(
    server: S3Server, proxy: TcpProxy, tmp_path: Path
) -> None:
    bucket = server.bucket()
    with (
        closing(S3Store(bucket)) as store,
        mounted_bucket(replace(bucket, endpoint=f"http://127.0.0.1:{proxy.port}"), tmp_path, "--writeback") as mount,
    ):
        (mount.folder / "file").write_bytes(b"before")
        eventually(lambda: mount.stats()["tree"]["waiting"] == 0)
        proxy.answers = http_error("403 Forbidden", "ExpiredToken")
        proxy.cut()
        (mount.folder / "file").write_bytes(b"acknowledged")
        eventually(lambda: mount.stats()["tree"]["failed"] == 1)
        assert (mount.folder / "file").read_bytes() == b"acknowledged"
        proxy.answers = b""
        eventually(lambda: mount.stats()["tree"]["waiting"] == 0)
        assert mount.stats()["tree"]["failed"] == 0
        assert store.read("file", size=99) == b"acknowledged"


@pytest.mark.skipif(shutil.which("vim") is None, reason="vim is not installed")
def test_vim_saves(server: S3Server, tmp_path: Path) -> None:
    """A backup, a rename and a new file, as vim does it by default; then in place."""
    bucket = server.bucket()
    store = S3Store(bucket)
    store.write("text", b"one\n")
    with mounted_bucket(bucket, tmp_path) as mount:
        for way in ("no", "yes"):
            before = store.read("text", size=100)
            command = ["vim", "-u", "NONE", "-i", "NONE", "-es", "-c", f"set backup backupskip= backupcopy={way}"]
            words = [*command, "-c", f"$s/$/ {way}/", "-c", "wq", str(mount.folder / "text")]
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL
            )
            assert done.returncode == 0, done.stderr
            assert store.read("text", size=100) == before[:-1] + f" {way}\n".encode()
            assert (mount.folder / "text~").read_bytes() == before
        assert sorted(each.key for each in store.list_entries()) == ["text", "text~"]


def test_a_slow_store_is_only_slow(server: S3Server, proxy: TcpProxy, tmp_path: Path) -> None:
    bucket = server.bucket()
    store = S3Store(bucket)
    content = os.urandom(300_000)
    store.write("file", content)
    proxy.bytes_a_second = 500_000.0
    with mounted_bucket(replace(bucket, endpoint=f"http://127.0.0.1:{proxy.port}"), tmp_path) as mount:
        assert (mount.folder / "file").read_bytes() == content
        (mount.folder / "other").write_bytes(content)
        proxy.bytes_a_second = 0.0
    assert store.read("other", size=len(content) + 1) == content
    store.close()


def test_a_bucket_that_vanishes(server: S3Server, tmp_path: Path) -> None:
    """Cached content stays readable, a new file is refused at close, and nothing looks empty that is not."""
    bucket = server.bucket()
    store = S3Store(bucket)
    store.write("file", b"cached")
    with mounted_bucket(bucket, tmp_path, "--ttl", "600") as mount:
        assert (mount.folder / "file").read_bytes() == b"cached"
        store.remove("file")
        shutil.rmtree(Path(str(server.process.args[-1]), bucket.name))  # type: ignore[index]  # a list: its last word is the folder
        assert (mount.folder / "file").read_bytes() == b"cached"
        with pytest.raises(OSError), (mount.folder / "new").open("wb") as file:
            file.write(b"x")
        with pytest.raises(OSError) as raised:
            (mount.folder / "new").stat()
        assert raised.value.errno == errno.EIO
        assert mount.stats()["internal_errors"] == 0
    with mounted_refused(bucket, tmp_path / "other") as said:
        assert bucket.name in said
    store.close()


@contextmanager
def mounted_refused(bucket: Bucket, cache: Path) -> Iterator[str]:
    with pytest.raises(AssertionError) as raised, mounted_bucket(bucket, cache):
        pass
    yield str(raised.value)


def test_keys_that_are_refused_after_a_while(server: S3Server, tmp_path: Path) -> None:
    """Close says so; a file that was acknowledged waits until a mount has the right keys."""
    bucket = server.bucket()
    store = S3Store(bucket)
    with mounted_bucket(bucket, tmp_path, "--writeback", "--ttl", "600") as mount:
        (mount.folder / "folder").mkdir()
        (mount.folder / "folder" / "before").write_bytes(b"x")
        eventually(lambda: mount.stats()["tree"]["waiting"] == 0)
        server.process.send_signal(signal.SIGSTOP)
        try:
            (mount.folder / "folder" / "acknowledged").write_bytes(b"waits")
            mount.kill()
        finally:
            server.process.send_signal(signal.SIGCONT)
        mount.umount("-f")
        wrong = [word if word != KEYS.secret_key else "expired" for word in mount.options]
        refused = mount.run("mount", "--url", mount.url, str(mount.folder), *wrong, check=False)
        assert refused.returncode == 1
        assert "hint:" in refused.stderr
        assert "folder/before" in {each.key for each in store.list_entries(recursive=True)}
        mount.mount(*mount.options)
        assert (mount.folder / "folder" / "acknowledged").read_bytes() == b"waits"
        assert store.read("folder/acknowledged", size=99) == b"waits"
    store.close()


def test_names_that_are_hard_to_hold(server: S3Server, tmp_path: Path) -> None:
    bucket = server.bucket()
    names = ["new\nline", "ü" * 127, "n" * 255, "blank ", " blank", "%2F", "a+b", "tab\t", "'\"", "\\", "*?[]"]
    with mounted_bucket(bucket, tmp_path) as mount:
        for name in names:
            (mount.folder / name).write_text(name)
        mount.umount()
        mount.mount(*mount.options)
        assert {each.name for each in mount.folder.iterdir()} == set(names)
        assert all((mount.folder / name).read_text() == name for name in names)
        with pytest.raises(OSError) as raised:
            (mount.folder / ("n" * 256)).write_bytes(b"x")
        assert raised.value.errno == errno.ENAMETOOLONG
        with pytest.raises(OSError) as raised:
            mount.folder.joinpath(*["d" * 100] * 20).mkdir(parents=True)
        assert raised.value.errno == errno.ENAMETOOLONG, "a key has at most 1,024 bytes"
        assert mount.stats()["internal_errors"] == 0


def test_pip_installs_into_a_mount(server: S3Server, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "tiny_example.py").write_text("answer = 42\n")
    (tmp_path / "project" / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "tiny-example"\nversion = "1"\n'
    )
    (tmp_path / "project" / "backend.py").write_text(
        "import zipfile\n"
        "def build_wheel(folder, config_settings=None, metadata_directory=None):\n"
        "    name = 'tiny_example-1-py3-none-any.whl'\n"
        "    with zipfile.ZipFile(f'{folder}/{name}', 'w') as made:\n"
        "        made.write('tiny_example.py')\n"
        "        info = 'tiny_example-1.dist-info'\n"
        "        made.writestr(f'{info}/METADATA', 'Metadata-Version: 2.1\\nName: tiny-example\\nVersion: 1\\n')\n"
        "        made.writestr(f'{info}/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
        "        made.writestr(f'{info}/RECORD', '')\n"
        "    return name\n"
    )
    with mounted_bucket(server.bucket(), tmp_path / "cache") as mount:
        words = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--disable-pip-version-check",
        ]
        subprocess.run([*words, "--target", str(mount.folder / "site"), str(tmp_path / "project")], check=True)
        ask = [sys.executable, "-c", "import tiny_example; print(tiny_example.answer)"]
        told = subprocess.run(
            ask, env={**os.environ, "PYTHONPATH": str(mount.folder / "site")}, capture_output=True, check=True
        )
        assert told.stdout == b"42\n"
