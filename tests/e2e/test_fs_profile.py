"""What a mount shows of itself: rates as they are, and which files programs open, as a picture."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import pytest

from paddleflow.cli.fs_profile import draw
from paddleflow.fs.blocks import BLOCK
from paddleflow.fs.control import ask_opens
from paddleflow.fs.trace import Opened
from paddleflow.objects.s3 import S3Store
from tests.mounts import COMMAND, Mount, mounted, mounted_bucket, needs_fuse
from tests.patience import eventually
from tests.s3_servers import versitygw

pytestmark = [needs_fuse, pytest.mark.timeout(120)]


def opened(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    monkeypatch.setenv("HOME", mount.environment["HOME"])
    return ask_opens(mount.folder)


def test_opens_are_noted_from_the_first_question_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "line\nbreak"):
        (tmp_path / name).write_bytes(b"x")
    with mounted(f"file://{tmp_path}") as mount:
        (mount.folder / "a").read_bytes()
        assert opened(mount, monkeypatch) == []
        for name in ("b", "a", "line\nbreak", "b"):
            (mount.folder / name).read_bytes()
        found = opened(mount, monkeypatch)
        assert [each.name for each in found] == ["b", "a", "line\nbreak", "b"]
        assert opened(mount, monkeypatch) == []


def test_what_had_to_be_fetched_was_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small objects come with their open, large ones with their reads."""
    large = BLOCK + 1
    with versitygw() as server, closing(S3Store(bucket := server.bucket())) as store:
        for name, size in (("small", 1000), ("large", large), ("other", 1000)):
            store.write(name, bytes(size))
        with mounted_bucket(bucket, tmp_path) as mount:

            def read(*names: str) -> list[tuple[str, bool]]:
                for name in names:
                    (mount.folder / name).read_bytes()
                return [(each.name, each.cached) for each in opened(mount, monkeypatch)]

            read()
            found = read("small", "small", "large", "other")
            # The kernel tells of a close afterwards: an open before that is of the file that was just fetched.
            eventually(lambda: read("large") == [("large", True)], "the large file is found in the cache")
    assert found == [("small", False), ("small", True), ("large", False), ("other", False)]


def test_a_profile_counts_and_draws(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "<a>").write_bytes(b"x")
    with mounted(f"file://{source}") as mount:
        words = ["fs", "profile", str(mount.folder), "--seconds", "3", "--picture", str(tmp_path / "x.svg"), "--json"]
        with subprocess.Popen([*COMMAND, *words], env=mount.environment, stdout=subprocess.PIPE) as process:
            while process.poll() is None:
                (mount.folder / "<a>").read_bytes()
            assert process.stdout is not None
            found = json.loads(process.stdout.read())
        assert found["files"] == 1
        assert found["opens"] > 1
        assert found["most"] == [{"name": "<a>", "opens": found["opens"]}]
        assert ElementTree.parse(tmp_path / "x.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("count", [0, 1, 50_000])
def test_a_picture_of_anything_is_xml_and_bounded(count: int) -> None:
    opens = [Opened(number / 10, f"\x01<&>{number % 7}" + "n" * 300, number % 10 > 0) for number in range(count)]
    text = draw(opens)
    ElementTree.fromstring(text)
    assert len(text) < 1_000_000


def test_rates_are_shown_again_and_again(tmp_path: Path) -> None:
    with mounted(f"file://{tmp_path}") as mount:
        words = [*COMMAND, "fs", "stats", str(mount.folder), "--watch", "--json"]
        with subprocess.Popen(words, env=mount.environment, stdout=subprocess.PIPE) as process:
            try:
                (mount.folder / "a").write_bytes(b"x" * 1000)
                assert process.stdout is not None
                lines = [json.loads(process.stdout.readline()) for _ in range(2)]
            finally:
                process.terminate()
        assert lines[1]["requests"]["create"]["count"] == 1
        shown = mount.run("stats", str(mount.folder)).stdout
        assert "create" in shown
