"""Programs from Go modules: each of our small modules under ``modules/`` pins what it builds, and go does the rest.

Go keeps what it has compiled, so a build that was broken off goes on where it was.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

from scripts.lib.cluster.errors import ClusterError, say
from scripts.lib.cluster.paths import CACHE, MODULES, PROGRAMS, SOURCES

KUBERNETES = "v1.34.4"
OLDEST_GO = (1, 24)
DISK_GIB = 8  #: what a build of everything takes in go's own caches and ours
REPORT_SECONDS = 30.0  #: between two lines about a long build

_VERSION = "k8s.io/component-base/version"
_LINK = [
    *("-s", "-w", f"-X {_VERSION}.gitVersion={KUBERNETES}", f"-X {_VERSION}.gitMajor=1", f"-X {_VERSION}.gitMinor=34"),
    *(f"-X {_VERSION}.gitTreeState=clean", f"-X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES}"),
]
RECIPE = " ".join(_LINK)


def require_go(cache: Path = CACHE, disk_gib: int = DISK_GIB) -> None:
    """Go in a version that will do, and the disk to work on."""
    if shutil.which("go") is None:
        raise ClusterError(
            "Go is not installed", f"install Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or newer and put it on the PATH"
        )
    printed = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"go(\d+)\.(\d+)", printed)
    if found and (int(found[1]), int(found[2])) < OLDEST_GO:
        raise ClusterError(f"Go is too old: {printed.strip()}", f"install Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or newer")
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free / 2**30
    if free < disk_gib:
        raise ClusterError(
            f"a build needs {disk_gib} GiB of free disk, {cache} has {free:.1f} GiB",
            "make room, or set XDG_CACHE_HOME, GOCACHE and GOMODCACHE to folders on a larger disk",
        )


def compile_program(module: Path, package: str, program: str) -> None:
    """Build `package` of a module folder into our programs; what was there before stays until the new one is whole."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    new = PROGRAMS / f"{program}.new"
    command = [
        "nice",
        "-n",
        "10",
        "go",
        "build",
        "-v",
        "-trimpath",
        "-ldflags",
        RECIPE,
        "-o",
        str(new),
        package,
    ]
    began = time.monotonic()
    with subprocess.Popen(command, cwd=module, env=_environment(), stderr=subprocess.PIPE, text=True) as process:
        lines: list[str] = []
        done = threading.Event()
        reporter = threading.Thread(target=_report, args=(program, lines, done, began), daemon=True)
        reporter.start()
        assert process.stderr is not None
        lines.extend(line.rstrip() for line in process.stderr)
        done.set()
    if process.returncode:
        raise ClusterError(
            f"{program} did not build (go build {package} in {module}):\n" + "\n".join(lines[-15:]),
            "is the Go module proxy reachable (go env GOPROXY)? The next build goes on where this one stopped",
        )
    new.replace(PROGRAMS / program)
    size = (PROGRAMS / program).stat().st_size / 2**20
    say(f"{program}: built in {time.monotonic() - began:.0f} s, {size:.0f} MiB")


def _report(program: str, lines: list[str], done: threading.Event, began: float) -> None:
    """Say now and then how many packages go has compiled."""
    while not done.wait(REPORT_SECONDS):
        compiled = sum(not line.startswith("go: ") for line in lines)
        say(f"{program}: {compiled} packages compiled in {time.monotonic() - began:.0f} s")


def module_folder(module: Path, path: str) -> Path:
    """Where go keeps the sources of the required module `path`."""
    printed = subprocess.run(
        ["go", "mod", "download", "-json", path],
        cwd=module,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if printed.returncode:
        raise ClusterError(f"module {path} cannot be had: {printed.stderr.strip() or printed.stdout.strip()}")
    return Path(json.loads(printed.stdout)["Dir"])


def mended_argo() -> Path:
    """A copy of the module argo whose Workflows have the Linux file that the published module lacks.

    It is the twin of the darwin one: both send a signal as every Unix does.
    """
    ours = SOURCES / "argo"
    for folder in (ours, SOURCES / "argo-workflows"):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(MODULES / "argo", ours)
    theirs = SOURCES / "argo-workflows"
    shutil.copytree(module_folder(ours, "github.com/argoproj/argo-workflows/v3"), theirs)
    subprocess.run(["chmod", "-R", "u+w", theirs], check=True)
    signals = theirs / "workflow" / "executor" / "osspecific"
    if not (signals / "signal_linux.go").exists():
        shutil.copy(signals / "signal_darwin.go", signals / "signal_linux.go")
    replace = f"github.com/argoproj/argo-workflows/v3={theirs}"
    subprocess.run(["go", "mod", "edit", "-replace", replace], cwd=ours, env=_environment(), check=True)
    return ours


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
