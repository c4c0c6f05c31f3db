"""How the test cluster's parts are built once, and its images made, without building anything large."""

from __future__ import annotations

import hashlib
import json
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.lib.cluster import golang, images, inventory
from scripts.lib.cluster.builds import Builds
from scripts.lib.cluster.errors import ClusterError, eventually
from scripts.lib.cluster.inventory import Shape
from scripts.lib.cluster.parts import PARTS, Part


class Workshop:
    """Parts of one file each, made in a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "source"
        self.source.write_text("one")
        self.made: list[str] = []
        self.before: Callable[[], None] = lambda: None
        parts = {"base": self._part("base"), "top": self._part("top", ("base",))}
        builds = Builds(parts, folder / "cache", folder, folder / "scratch")
        self.build, self.require = builds.build, builds.require

    def _part(self, name: str, needs: tuple[str, ...] = ()) -> Part:
        def make() -> None:
            self.before()
            self.made.append(name)
            (self.folder / name).write_text("made")

        return Part(name, "a part", make, (self.source,), "1", (self.folder / name,), needs, home=self.folder / "cache")


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def test_a_part_is_built_once_after_what_it_needs(workshop: Workshop) -> None:
    with pytest.raises(ClusterError, match="not built: base, top"):
        workshop.require(["top"])
    workshop.build(["top", "base"])
    workshop.build(["top"])
    workshop.require(["top"])
    assert workshop.made == ["base", "top"]


def test_a_changed_source_builds_it_and_all_above_anew(workshop: Workshop) -> None:
    workshop.build(["top"])
    workshop.source.write_text("two")
    workshop.build(["top"])
    assert workshop.made == ["base", "top"] * 2


def test_a_lost_result_is_built_anew(workshop: Workshop) -> None:
    workshop.build(["top"])
    (workshop.folder / "top").unlink()
    workshop.build(["top"])
    assert workshop.made == ["base", "top", "top"]


def test_a_broken_off_build_goes_on_where_it_was(workshop: Workshop) -> None:
    def cut() -> None:
        if workshop.made:
            (workshop.folder / "top").write_text("half of it")
            raise KeyboardInterrupt

    workshop.before = cut
    with pytest.raises(KeyboardInterrupt):
        workshop.build(["top"])
    assert workshop.made == ["base"]
    workshop.before = lambda: None
    workshop.build(["top"])
    assert workshop.made == ["base", "top"]


def test_a_second_builder_waits_and_finds_the_work_done(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        assert go_on.wait(30)

    workshop.before = wait
    builders = [threading.Thread(target=workshop.build, args=(["base"],)) for _ in range(2)]
    builders[0].start()
    assert inside.wait(30)
    builders[1].start()
    told = ""

    def waits() -> bool:
        nonlocal told
        told += capsys.readouterr().err
        return "another build is at work" in told

    eventually(waits, "the second builder waits", 30)
    go_on.set()
    for builder in builders:
        builder.join(30)
    assert workshop.made == ["base"]


def test_no_go_and_no_disk_are_said_with_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="Go is not installed") as caught:
        golang.require_go(tmp_path)
    assert "install Go" in caught.value.hint
    (tmp_path / "go").write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    (tmp_path / "go").chmod(0o755)
    with pytest.raises(ClusterError, match=r"Go is too old: go version go1\.19\.8"):
        golang.require_go(tmp_path)
    (tmp_path / "go").write_text("#!/bin/sh\necho go version go1.26.1 linux/amd64\n")
    golang.require_go(tmp_path)
    with pytest.raises(ClusterError, match="GiB of free disk") as caught:
        golang.require_go(tmp_path, disk_gib=10**9)
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_every_part_names_sources_that_exist() -> None:
    assert [str(source) for part in PARTS.values() for source in part.sources if not source.exists()] == []


def test_an_image_holds_its_files_and_is_the_same_each_time(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("run me")
    digests = set()
    for _ in range(2):
        program.touch()
        image = images.Image("small", "docker.io/local/small:1", tmp_path / "images")
        layer = images.layer_of_files("small", {"bin/program": program}, {"bin/twin": "program"}, tmp_path / "scratch")
        images.write(image, [layer], ["/bin/program"], {"COLOUR": "blue"})
        digests.add(hashlib.sha256(image.archive.read_bytes()).hexdigest())
    assert len(digests) == 1
    with tarfile.open(image.archive) as archive:

        def content(name: str) -> bytes:
            file = archive.extractfile(name)
            assert file is not None
            return file.read()

        (manifest,) = json.loads(content("manifest.json"))
        assert manifest["RepoTags"] == ["docker.io/local/small:1"]
        config = json.loads(content(manifest["Config"]))
        assert config["config"]["Cmd"] == ["/bin/program"]
        assert "COLOUR=blue" in config["config"]["Env"]
        (packed,) = manifest["Layers"]
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content(packed)).hexdigest()}"]
        with tarfile.open(layer) as files:
            assert {"bin/program", "bin/twin", "tmp"} <= set(files.getnames())
            assert files.getmember("bin/twin").linkname == "program"


def test_clusters_get_ports_of_their_own(tmp_path: Path) -> None:
    first, second = (inventory.reserve(name, Shape(addons=("kwok",), simulated=3), tmp_path) for name in ("a", "b"))
    assert abs(first.first_port - second.first_port) >= 10
    assert inventory.load("a", tmp_path) == first
    assert [each.name for each in inventory.every(tmp_path)] == ["a", "b"]
    with pytest.raises(ClusterError, match="no cluster called 'a' is up"):
        inventory.find("a", tmp_path)  # only begun
