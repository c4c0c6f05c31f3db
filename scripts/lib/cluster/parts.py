"""What can be built: each part with what it is made from, so that it is built anew exactly when that changes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scripts.lib.cluster import debian, golang, images
from scripts.lib.cluster.errors import ClusterError
from scripts.lib.cluster.paths import CACHE, DEFINITIONS, IMAGES, MODULES, OWN, PROGRAMS, REPOSITORY, SOURCES

COMPONENTS = (
    *(
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "kubectl",
        "tunnel",
    ),
)
PYTHON_SUITE = "bookworm"  #: its Python is 3.11, which the framework environments of scripts/frameworks are made for
PYTHON_VERSION = "3.11"


@dataclass(frozen=True)
class Part:
    """Something to build once."""

    name: str
    what: str  #: for people, with the time it takes the first time on two cores
    make: Callable[[], None]
    sources: tuple[Path, ...]  #: files and folders; when one changes the part is built anew
    recipe: str  #: how it is made, in a word that changes with it
    results: tuple[Path, ...]
    needs: tuple[str, ...] = ()
    go: bool = False
    root: bool = False
    home: Path = CACHE  #: where its stamp lies


def _kube() -> None:
    golang.compile_program(MODULES / "kube", ".", "kubeall")
    for component in COMPONENTS:
        link = PROGRAMS / component
        link.unlink(missing_ok=True)
        link.symlink_to("kubeall")
    golang.compile_program(MODULES / "pause", ".", "pause")


def _coredns() -> None:
    golang.compile_program(MODULES / "coredns", ".", "coredns")
    layer = images.layer_of_files("coredns", {"coredns": PROGRAMS / "coredns"}, {})
    images.write(images.COREDNS, [layer], ["/coredns"], {})


def _volcano() -> None:
    for command in ("scheduler", "controller-manager", "webhook-manager"):
        golang.compile_program(MODULES / "volcano", f"volcano.sh/volcano/cmd/{command}", f"vc-{command}")
    chart = golang.module_folder(MODULES / "volcano", "volcano.sh/volcano") / "installer" / "helm" / "chart" / "volcano"
    _keep_definitions("volcano", [chart / "crd" / "bases", chart / "charts" / "jobflow" / "crd" / "bases"])


def _kwok() -> None:
    golang.compile_program(MODULES / "kwok", "sigs.k8s.io/kwok/cmd/kwok", "kwok")


def _helm() -> None:
    golang.compile_program(MODULES / "helm", "helm.sh/helm/v3/cmd/helm", "helm")


def _training_operator() -> None:
    module = MODULES / "training-operator"
    golang.compile_program(
        module, "github.com/kubeflow/training-operator/cmd/training-operator.v1", "training-operator"
    )
    theirs = golang.module_folder(module, "github.com/kubeflow/training-operator")
    _keep_definitions("training-operator", [theirs / "manifests" / "base" / "crds"])


def _argo() -> None:
    module = golang.mended_argo()
    for command, program in (("workflow-controller", "argo-workflow-controller"), ("argoexec", "argoexec")):
        golang.compile_program(module, f"github.com/argoproj/argo-workflows/v3/cmd/{command}", program)
    _keep_definitions("argo", [SOURCES / "argo-workflows" / "manifests" / "base" / "crds" / "minimal"])
    layer = images.layer_of_files("argoexec", {"bin/argoexec": PROGRAMS / "argoexec"}, {})
    images.write(images.ARGOEXEC, [layer], ["argoexec"], {})


def _keep_definitions(name: str, folders: list[Path]) -> None:
    """Copy the custom resource definitions that a module ships."""
    goal = DEFINITIONS / name
    shutil.rmtree(goal, ignore_errors=True)
    goal.mkdir(parents=True)
    for folder in folders:
        for file in sorted(folder.glob("*.yaml")):
            if file.name != "kustomization.yaml":
                (goal / file.name).write_bytes(file.read_bytes())


def _node_images() -> None:
    debian.install(debian.NODE_PACKAGES)
    layer = images.layer_of_files("pause", {"pause": PROGRAMS / "pause"}, {})
    images.write(images.PAUSE, [layer], ["/pause"], {})
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    told = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"bin/{tool}": "busybox" for tool in told if tool != "busybox"}
    layer = images.layer_of_files("busybox", {"bin/busybox": busybox}, links)
    images.write(images.BUSYBOX, [layer], ["/bin/sh"], {})


def _python_layer() -> Path:
    """The root file system of the Python image; kept, for the operator's image stands on it."""
    return IMAGES / "python.layer"


def _python_image() -> None:
    debian.install(("debootstrap",))
    root = SOURCES / "python"
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    include = "--include=python3,ca-certificates,libgomp1,libstdc++6"  # the libraries are for paddlepaddle
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", include, PYTHON_SUITE, root, *debian.mirror()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClusterError(
            "debootstrap failed:\n" + "\n".join(done.stdout.splitlines()[-10:]), "is the Debian mirror reachable?"
        )
    for spare in (
        "usr/share/doc",
        "usr/share/man",
        "usr/share/locale",
        "usr/share/info",
        "var/cache/apt",
        "var/lib/apt",
    ):
        shutil.rmtree(root / spare, ignore_errors=True)
    IMAGES.mkdir(parents=True, exist_ok=True)
    shutil.move(images.layer_of_folder("python", root), _python_layer())
    shutil.rmtree(root)
    images.write(images.PYTHON, [_python_layer()], ["python3"], {})


def _operator_image() -> None:
    """The Python image and, above it, this repository's package with what server, operator and scheduler need."""
    root = SOURCES / "operator"
    shutil.rmtree(root, ignore_errors=True)
    packages = root / "opt" / "paddleflow"
    packages.mkdir(parents=True)
    uv = REPOSITORY / ".venv" / "bin" / "uv"
    done = subprocess.run(
        [
            *(str(uv), "pip", "install", "--quiet", "--target", str(packages), "--python-version", PYTHON_VERSION),
            *("--only-binary", ":all:", "-r", "pyproject.toml", "-r", "requirements/uv.txt"),
            *(word for extra in ("kubernetes", "server", "postgres") for word in ("--extra", extra)),
            *("--constraint", "requirements/lock.txt"),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"the operator's packages did not install:\n{done.stderr.strip()}")
    ours = REPOSITORY / "src" / "paddleflow"
    shutil.copytree(ours, packages / "paddleflow", ignore=shutil.ignore_patterns("__pycache__"))
    command = root / "usr" / "local" / "bin" / "paddleflow"
    command.parent.mkdir(parents=True)
    command.write_text("#!/usr/bin/python3\nfrom paddleflow.cli.main import main\n\nmain()\n")
    command.chmod(0o755)
    layer = images.layer_of_folder("operator", root)
    variables = {"PYTHONPATH": "/opt/paddleflow", "PYTHONDONTWRITEBYTECODE": "1"}
    images.write(images.OPERATOR, [_python_layer(), layer], ["paddleflow"], variables)


_OF_THE_SYSTEM = ("ld-linux", "libc.", "libm.", "libdl.", "libpthread.", "librt.", "libresolv.", "linux-vdso")


def _postgres_image() -> None:
    """The Python image and, above it, this machine's PostgreSQL of Debian with its libraries."""
    binaries = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
    if binaries is None:
        raise ClusterError("PostgreSQL is not installed", "Debian: apt-get install postgresql")
    version = binaries.parent.name
    root = SOURCES / "postgres"
    shutil.rmtree(root, ignore_errors=True)
    for folder in (f"usr/lib/postgresql/{version}", f"usr/share/postgresql/{version}"):
        shutil.copytree(f"/{folder}", root / folder, ignore=shutil.ignore_patterns("bitcode", "llvmjit*", "man"))
    libraries, commands = root / "opt" / "postgresql", root / "usr" / "local" / "bin"
    libraries.mkdir(parents=True)
    commands.mkdir(parents=True)
    for name in ("postgres", "initdb", "pg_isready", "psql", "pg_dump"):
        (commands / name).symlink_to(f"/usr/lib/postgresql/{version}/bin/{name}")
        found = subprocess.run(["ldd", binaries / name], capture_output=True, text=True, check=True).stdout
        for line in found.splitlines():
            source = line.partition("=>")[2].split()
            if source and source[0].startswith("/") and not Path(source[0]).name.startswith(_OF_THE_SYSTEM):
                shutil.copy(source[0], libraries)
    layer = images.layer_of_folder("postgres", root)
    images.write(images.POSTGRES, [_python_layer(), layer], ["postgres"], {"LD_LIBRARY_PATH": "/opt/postgresql"})


def _program(*names: str) -> tuple[Path, ...]:
    return tuple(PROGRAMS / name for name in names)


PARTS = {
    part.name: part
    for part in (
        Part(
            "kube",
            "Kubernetes and etcd in one binary, about 9 minutes",
            _kube,
            (MODULES / "kube", MODULES / "pause"),
            golang.RECIPE,
            _program("kubeall", "pause", *COMPONENTS),
            go=True,
        ),
        Part(
            "node-images",
            "the images that every node has, and containerd from Debian",
            _node_images,
            (MODULES / "pause",),
            images.RECIPE,
            (images.PAUSE.archive, images.BUSYBOX.archive),
            needs=("kube",),
            root=True,
        ),
        Part(
            "coredns",
            "the cluster's name server, about 2 minutes",
            _coredns,
            (MODULES / "coredns",),
            golang.RECIPE,
            (*_program("coredns"), images.COREDNS.archive),
            go=True,
        ),
        Part(
            "volcano",
            "Volcano's scheduler, controllers and webhooks, about 6 minutes",
            _volcano,
            (MODULES / "volcano",),
            golang.RECIPE,
            (*_program("vc-scheduler", "vc-controller-manager", "vc-webhook-manager"), DEFINITIONS / "volcano"),
            go=True,
        ),
        Part(
            "kwok",
            "simulated nodes, about 2 minutes",
            _kwok,
            (MODULES / "kwok",),
            golang.RECIPE,
            _program("kwok"),
            go=True,
        ),
        Part(
            "helm",
            "the installer of charts, about 2 minutes",
            _helm,
            (MODULES / "helm",),
            golang.RECIPE,
            _program("helm"),
            go=True,
        ),
        Part(
            "training-operator",
            "Kubeflow's operator, a peer for benchmarks, about 3 minutes",
            _training_operator,
            (MODULES / "training-operator",),
            golang.RECIPE,
            (*_program("training-operator"), DEFINITIONS / "training-operator"),
            go=True,
        ),
        Part(
            "argo",
            "Argo's workflow controller and executor with its image, 5 to 11 minutes",
            _argo,
            (MODULES / "argo",),
            golang.RECIPE,
            (*_program("argo-workflow-controller", "argoexec"), DEFINITIONS / "argo", images.ARGOEXEC.archive),
            go=True,
        ),
        Part(
            "python-image",
            "a Debian with Python as an image, about a minute",
            _python_image,
            (),
            images.RECIPE,
            (images.PYTHON.archive, _python_layer()),
            root=True,
        ),
        Part(
            "postgres-image",
            "PostgreSQL of this machine's Debian as an image",
            _postgres_image,
            (),
            f"{images.RECIPE}-1",
            (images.POSTGRES.archive,),
            needs=("python-image",),
            root=True,
        ),
        Part(
            "operator-image",
            "the Python image with this repository's package in it",
            _operator_image,
            (REPOSITORY / "src", REPOSITORY / "pyproject.toml", REPOSITORY / "requirements"),
            f"{images.RECIPE}-server-uv",
            (images.OPERATOR.archive,),
            needs=("python-image",),
            home=OWN,
        ),
    )
}
