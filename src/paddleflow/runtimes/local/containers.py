"""Jobs with an image in containers of this machine, made by podman or docker: the server's part.

A container gets what a process would get: mounts, limits, devices, variables, code, work folder, log, and the network of the machine.
`wrap` turns the launch of a process into the launch of `container`, whose own environment holds nothing of the user but the values of
secrets: the engine's client runs as the server's account, and must not be led by a variable such as LD_PRELOAD.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddleflow.base.ids import AttemptId
from paddleflow.environment import inherited
from paddleflow.errors import Invalid, Unavailable
from paddleflow.runtimes.local import mounts
from paddleflow.runtimes.local.container import ENGINES, FROM_CWD, Spec
from paddleflow.runtimes.local.procfs import ATTEMPT, KEEPER, read
from paddleflow.runtimes.runtime import Launch
from paddleflow.settings import LocalSettings

FOLDER = "containers"  #: of the data folder, for what containers leave
PULLS = ("never", "missing", "always")
PATIENCE = 60.0  #: seconds for the engine to say that it is there
ISOLATED_SHM = "1g"
#: of the server, for the engine's client
ENGINE_ENV = (
    "PATH,HOME,USER,XDG_RUNTIME_DIR,XDG_CONFIG_HOME,XDG_DATA_HOME,DBUS_SESSION_BUS_ADDRESS,TMPDIR,CONTAINERS_CONF,"
    "CONTAINERS_STORAGE_CONF,CONTAINERS_REGISTRIES_CONF,REGISTRY_AUTH_FILE,DOCKER_HOST,DOCKER_CONFIG,DOCKER_CONTEXT,"
    "HTTP_PROXY,HTTPS_PROXY,NO_PROXY,http_proxy,https_proxy,no_proxy"
)
#: names of variables that would change what the engine's client itself does
_LEADS_CLIENT = re.compile(
    r"(LD_|GO|GLIBC_|MALLOC_|DOCKER_|CONTAINER|BUILDAH|STORAGE_|PODMAN|REGISTRY_|XDG_|PYTHON|_|SSL_).*|"
    r"PATH|HOME|USER|TMPDIR|DBUS_SESSION_BUS_ADDRESS|NOTIFY_SOCKET|LISTEN_.*|.*_PROXY|.*_proxy|HOSTALIASES|RES_OPTIONS|LOCALDOMAIN"
)
#: [registry[:port]/]name[/name …][:tag][@digest]
_IMAGE = re.compile(r"(\w[\w.-]*(:[0-9]+)?/)?\w[\w.-]*(/\w[\w.-]*)*(:\w[\w.-]*)?(@sha256:[0-9a-f]{64})?", re.ASCII)
#: With these before the colon podman reads a file or folder of the machine as root, and adds to the images of all what is in it.
_TRANSPORTS = (
    "containers-storage",
    "dir",
    "docker-archive",
    "docker-daemon",
    "oci",
    "oci-archive",
    "ostree",
    "sif",
    "tarball",
)
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")


def ignored(image: str) -> str:
    """The message for a job with an image where there are no containers."""
    return (
        f"paddleflow: image {image} is ignored: this machine runs jobs with its own programs "
        "(the setting local.containers is off)\n"
    )


class Containers:
    """The containers of one server. Made only where the setting asks for them."""

    def __init__(self, settings: LocalSettings, data: Path) -> None:
        self._engine = shlex.split(settings.containers)
        self.kind = Path(self._engine[0]).name if self._engine else ""
        if self.kind not in ENGINES:
            raise Invalid(
                f"local.containers = {settings.containers!r} is neither off nor a command of {' or '.join(ENGINES)}",
                hint="off, podman, docker, or one of the two with its path and options: podman --runtime runc",
            )
        if settings.pull not in PULLS:
            raise Invalid(f"local.pull = {settings.pull!r} is none of {', '.join(PULLS)}")
        self._settings = settings
        self._options = shlex.split(settings.container_options)
        self._folder = data / FOLDER
        self._env = inherited(ENGINE_ENV)
        self._inherited = inherited(settings.inherit)
        self._cores = os.cpu_count() or 1

    async def check(self) -> None:
        """Unavailable when the engine is not there or does not work."""
        if shutil.which(self._engine[0]) is None:
            raise Unavailable(
                f"local.containers is {self._settings.containers}, and {self._engine[0]} is not installed",
                hint=f"install {self.kind}, or set local.containers to off",
            )
        process = await asyncio.create_subprocess_exec(
            *self._engine, "info", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(PATIENCE):
                _, said = await process.communicate()
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise Unavailable(f"{self.kind} info has not answered for {PATIENCE:g} s") from error
        if process.returncode:
            text = said.decode("utf-8", "replace").strip()
            raise Unavailable(f"local.containers is {self._settings.containers}, and {self.kind} does not work: {text}")

    def refusal(self, launch: Launch) -> str:
        """Why a launch cannot run in a container; empty when it can."""
        if not is_image(launch.image):
            return f"image {launch.image[:200]!r} is not the name of an image, such as docker.io/library/python:3.12"
        if launch.requirements:
            return "requirements are not installed into an image: make them part of it, or leave the image out"
        for name in launch.secret_env:
            if _LEADS_CLIENT.fullmatch(name):
                return f"a secret cannot be given to a container as the variable {name}: choose another name"
        return ""

    def wrap(self, wire: dict[str, Any], launch: Launch) -> dict[str, Any]:
        """The launch of the container's main process, from what would be the launch of the job's."""
        before = wire["argv"][: len(wire["argv"]) - len(launch.command)]
        name = container_name(launch.attempt)
        folder = str(self._folder / launch.attempt)
        uid: int | None = wire.get("uid")
        own_env: Mapping[str, str] = wire.get("own_env", {})
        job_folder = wire["work"].rpartition("/")[0]
        shown = [[job_folder, job_folder, False, ""], *wire["mounts"]]
        spec = Spec(
            engine=self._engine,
            kind=self.kind,
            name=name,
            folder=folder,
            image=launch.image,
            pull=self._settings.pull,
            mounts=shown,
            workdir=FROM_CWD if launch.code else wire["cwd"],
            memory_text=wire["memory_text"] if self._limited(launch) else "",
            own=[job_folder, wire["work"]],
            code=f"{job_folder}/code" if launch.code else "",
            uid=uid,
        )
        main = [
            *(sys.executable, "-I", "-m", "paddleflow.runtimes.local.container", json.dumps(spec)),
            *("--network=host", "--init", f"--label=paddleflow.attempt={launch.attempt}"),
            *self._limits(launch),
            *self._user(uid),
            *device_options(self.kind, launch),
            *self._variables(wire["env"], own_env, launch),
            *self._options,
            "--",
        ]
        return {
            **{key: value for key, value in wire.items() if key not in ("uid", "own_env")},
            "argv": [*before, *main, *launch.command],
            "env": {**self._env, **launch.secret_env},
            "cwd": wire["work"],
            "cpu": 0,  # the engine sets the limits
            "memory": 0,
            "memory_text": "",
            "mounts": [],
            "container": {
                "folder": folder,
                "remove": [
                    *self._engine,
                    "rm",
                    "--force",
                    *(["--ignore", "--time=0"] if self.kind == "podman" else []),
                    name,
                ],
                "env": self._env,
            },
        }

    def _limited(self, launch: Launch) -> bool:
        return self._settings.limits != "off" and launch.limit is not None

    def _limits(self, launch: Launch) -> list[str]:
        if launch.limit is None or not self._limited(launch):
            return []
        words = []
        if launch.limit.memory > 0:
            words += [f"--memory={launch.limit.memory}b", f"--memory-swap={launch.limit.memory}b"]
        if 0 < launch.limit.cpu < self._cores * 1000:
            words.append(f"--cpus={launch.limit.cpu / 1000:g}")
        return words

    def _user(self, uid: int | None) -> list[str]:
        """Of an isolated job: its own number and no rights. Others share memory with processes of the machine, as processes do."""
        if uid is None:
            return ["--ipc=host"]
        words = [
            f"--user={uid}:{uid}",
            "--cap-drop=all",
            "--security-opt=no-new-privileges",
            f"--shm-size={ISOLATED_SHM}",
        ]
        return [*words, f"--pids-limit={self._settings.processes}"] if self._settings.processes else words

    def _variables(self, env: Mapping[str, str], own: Mapping[str, str], launch: Launch) -> list[str]:
        """The launch's, without what only the server passed on: the image has its own. Secrets come by the client's environment."""
        given = {
            name: value
            for name, value in {**env, **own}.items()
            if name not in launch.secret_env and (name in own or self._inherited.get(name) != value)
        }
        given |= {mounts.variable(mount.target): mount.target for mount in launch.mounts}
        words = [f"--env={name}={value}" for name, value in given.items()]
        words += [f"--env={name}" for name in launch.secret_env]
        return [*words, f"--env={ATTEMPT}={launch.attempt}", f"--env={KEEPER}"]


def is_image(name: str) -> bool:
    """Whether a job may name this image: neither an option of the engine nor anything of the machine but its images. Pure."""
    return _IMAGE.fullmatch(name) is not None and name.partition(":")[0] not in _TRANSPORTS


def container_name(attempt: AttemptId) -> str:
    return f"paddleflow-{attempt}"


def main_process(data: str, attempt: AttemptId) -> int | None:
    """The container's first process; None when the attempt has no container, or it has not begun."""
    text = read(f"{data}/{FOLDER}/{attempt}/pid")
    return int(text) if text and text.isdigit() else None


def has_container(data: str, attempt: AttemptId) -> bool:
    return Path(f"{data}/{FOLDER}/{attempt}").is_dir()


def device_options(kind: str, launch: Launch) -> list[str]:
    """Devices by their names in the Container Device Interface, which drivers describe in files of this machine.

    A resource that no file describes has no devices for the engine to give: its numbers are in the variables, as for a process.
    """
    words: list[str] = []
    for name, _ in launch.request.scalars:
        numbers = launch.env.get("PF_DEVICES_" + re.sub("[^A-Z0-9]", "_", name.upper()), "")
        if not numbers:
            continue
        if name in described_devices():
            words += [f"--device={name}={number}" for number in numbers.split(",")]
        elif kind == "docker" and name == "nvidia.com/gpu" and Path("/dev/nvidiactl").exists():
            words.append(f'--gpus="device={numbers}"')
    return words


def described_devices() -> set[str]:
    """The kinds of devices that files of the Container Device Interface describe here."""
    found = set()
    for folder in CDI_FOLDERS:
        for path in Path(folder).glob("*.*") if Path(folder).is_dir() else ():
            try:
                text = path.read_text("utf-8", "replace")
            except OSError:
                continue
            found |= set(re.findall(r"""^\s*"?kind"?\s*:\s*["']?([\w./-]+)""", text, re.MULTILINE))
    return found
