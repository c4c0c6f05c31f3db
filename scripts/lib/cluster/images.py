"""Container images without a registry: a docker archive, made of folders and files here, that containerd imports.

Layers are the same bytes for the same files, so an image made again keeps its digest, and nodes unpack a layer that two
images share once.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.lib.cluster.paths import IMAGES, OWN, SOURCES

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RECIPE = "2"  #: counts up when an image of the same sources must be made anew
_SKELETON = ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "usr/bin", "var")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """One of ours: the name that pods use, and the file that is loaded."""

    key: str
    name: str
    folder: Path = IMAGES

    @property
    def archive(self) -> Path:
        return self.folder / f"{self.key}.tar"


PAUSE = Image("pause", "docker.io/local/pause:1")
BUSYBOX = Image("busybox", "docker.io/local/busybox:1")
COREDNS = Image("coredns", "docker.io/local/coredns:1")
PYTHON = Image("python", "docker.io/local/python:1")
ARGOEXEC = Image("argoexec", "docker.io/local/argoexec:1")
POSTGRES = Image("postgres", "docker.io/local/postgres:1")
OPERATOR = Image("operator", "docker.io/local/paddleflow:dev", OWN)
ALL = {image.key: image for image in (PAUSE, BUSYBOX, COREDNS, PYTHON, ARGOEXEC, POSTGRES, OPERATOR)}


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same entry whoever packs it, and whenever."""
    entry.mtime = 0
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def layer_of_files(name: str, files: Mapping[str, Path], links: Mapping[str, str], scratch: Path = SOURCES) -> Path:
    """A layer with the usual empty folders, `files` by their place in the image, and symbolic `links`."""
    out = _layer(name, scratch)
    with tarfile.open(out, "w") as tar:
        for folder in _SKELETON:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for place, source in files.items():
            tar.add(source.resolve(), place, filter=_plain)
        for place, goal in links.items():
            entry = tarfile.TarInfo(place)
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, goal, 0o777
            tar.addfile(entry)
    return out


def layer_of_folder(name: str, folder: Path, scratch: Path = SOURCES) -> Path:
    """A layer with everything in `folder`; owners are kept."""

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = 0
        return entry

    out = _layer(name, scratch)
    with tarfile.open(out, "w") as tar:
        for child in sorted(folder.iterdir()):
            tar.add(child, child.name, filter=kept)
    return out


def _layer(name: str, scratch: Path) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch / f"{name}.layer"


def write(image: Image, layers: Sequence[Path], command: Iterable[str], variables: Mapping[str, str]) -> None:
    """Put the image's archive in its place, in one step."""
    digests = [_digest(layer) for layer in layers]
    config: dict[str, Any] = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Cmd": list(command),
            "Env": [f"{key}={value}" for key, value in {"PATH": PATH, **variables}.items()],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created_by": "scripts/cluster"} for _ in digests],
    }
    encoded = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(encoded).hexdigest()}.json"
    manifest = [
        {"Config": config_name, "RepoTags": [image.name], "Layers": [f"{digest}/layer.tar" for digest in digests]}
    ]
    image.archive.parent.mkdir(parents=True, exist_ok=True)
    new = image.archive.with_suffix(".new")
    with tarfile.open(new, "w") as tar:
        _add(tar, config_name, encoded)
        for digest, layer in zip(digests, layers, strict=True):
            tar.add(layer, f"{digest}/layer.tar", filter=_plain)
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    new.replace(image.archive)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def forget_scratch(scratch: Path) -> None:
    """Throw the layers and root file systems away: the archives hold them."""
    shutil.rmtree(scratch, ignore_errors=True)
