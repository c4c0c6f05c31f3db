"""Packages of a job in its pod: two steps before its container make a virtual environment of its image's own Python. Pure.

The first has the platform's image, and brings uv; the second has the job's image, so that what it builds fits, and the job's variables, so that
the same index is asked as on one machine. The environment is the pod's own, or, where the cluster has a folder for them, one of the job's user on
the node: pods with the same requirements and image share it. Users who share a node share nothing that one of them built.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from paddleflow.kube.resources import Object

CONTAINER = "requirements"
MOST_KEPT = 20  #: environments of a user on a node
KEPT_DAYS = 7  #: since its last start an environment is kept at least, however many there are
_TOOL_CONTAINER = "installer"
_FOLDER, _TOOLS, _SHARED = "/paddleflow/environment", "/paddleflow/tools", "/paddleflow/environments"
_VENV = f"{_FOLDER}/venv"
_VARIABLE = "PF_REQUIREMENTS"
_BRING = f"import shutil, uv; shutil.copy(uv.find_uv_bin(), '{_TOOLS}/uv')"
#: Anybody may write, for the user of the job's image is not known; the folder is seen by pods of one user of the platform.
_TIDY = f"""
import os, time
os.chmod('{_SHARED}', 0o777)
found = []
for each in os.scandir('{_SHARED}'):
    try:
        found.append((time.time() - each.stat().st_mtime, each))
    except FileNotFoundError:  # another pod tidies as well
        pass
for number, (age, each) in enumerate(sorted(found, key=lambda pair: pair[0])):
    if age > {KEPT_DAYS * 86400} and (number >= {MOST_KEPT} or each.name.startswith('.new-')):
        shutil.rmtree(each.path, ignore_errors=True)
"""
_FIND = 'python=$(command -v python3 || command -v python) || { echo "the image has no Python" >&2; exit 1; }; '
#: Runs in the image's Python, whatever version that is. Only a whole environment gets its name: a rename is all or nothing.
_BUILD = f"""
import os, platform, shutil, subprocess, sys, tempfile
def build(folder):
    uv = '{_TOOLS}/uv'
    subprocess.check_call([uv, 'venv', '--quiet', '--allow-existing', '--relocatable', '--python', sys.executable, folder])
    install = [uv, 'pip', 'install', '--no-progress', '--python', folder + '/bin/python', '-r', '-']
    done = subprocess.Popen(install, stdin=subprocess.PIPE)
    done.communicate(os.environ['{_VARIABLE}'].encode())
    if done.returncode:
        sys.exit(done.returncode)
shared, venv = sys.argv[1], '{_VENV}'
if not shared:
    build(venv)
    sys.exit()
made = shared + '-' + sys.implementation.cache_tag + '-' + platform.machine()
if not os.path.isdir(made):
    new = tempfile.mkdtemp(prefix='.new-', dir=os.path.dirname(shared))
    os.chmod(new, 0o755)
    build(new)
    try:
        os.rename(new, made)
    except OSError:  # another pod was first
        shutil.rmtree(new, ignore_errors=True)
try:
    os.utime(made)
except OSError:  # the user of another image made it
    pass
if not os.path.islink(venv):
    os.symlink(made, venv)
"""
_ENTER = f'export VIRTUAL_ENV={_VENV} PATH="{_VENV}/bin:$PATH"; unset PYTHONHOME; exec "$@"'


def add(spec: Object, requirements: str, platform_image: str, folder: str = "", user: str = "") -> None:
    """Have packages installed before the job's container starts, and found by its command.

    `folder` of the nodes keeps what was installed for `user`; empty: each pod installs its own.
    """
    main = spec["containers"][0]
    environment, tools = {"name": "environment", "mountPath": _FOLDER}, {"name": "tools", "mountPath": _TOOLS}
    shared = {"name": "environments", "mountPath": _SHARED}
    spec["volumes"] += [{"name": "environment", "emptyDir": {}}, {"name": "tools", "emptyDir": {}}]
    rights: Object = {"allowPrivilegeEscalation": False}
    if folder:
        own = f"{folder.rstrip('/')}/{hashlib.sha256(user.encode()).hexdigest()[:16]}"
        spec["volumes"].append({"name": "environments", "hostPath": {"path": own, "type": "DirectoryOrCreate"}})
    literal = requirements.replace("$", "$$")
    place = f"{_SHARED}/{_key(requirements, main)}" if folder else ""
    beside = [shared] if folder else []
    spec["initContainers"] = [
        *(spec.get("initContainers") or ()),
        {
            "name": _TOOL_CONTAINER,
            "image": platform_image,
            "command": ["python3", "-c", _BRING + (_TIDY if folder else "")],
            "volumeMounts": [tools, *beside],
            "resources": main["resources"],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {**rights, **({"runAsUser": 0, "runAsNonRoot": False} if folder else {})},
        },
        {
            "name": CONTAINER,
            "image": main["image"],
            "command": ["/bin/sh", "-c", f'{_FIND}exec "$python" -c "$1" "$2"', "sh", _BUILD.replace("$", "$$"), place],
            "env": [
                {"name": "UV_CACHE_DIR", "value": f"{_FOLDER}/.cache"},
                *main["env"],
                {"name": _VARIABLE, "value": literal},
            ],
            "volumeMounts": [environment, tools, *beside],
            "resources": main["resources"],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": rights,
        },
    ]
    main["volumeMounts"] += [environment, *({**each, "readOnly": True} for each in beside)]
    main["command"] = ["/bin/sh", "-c", _ENTER, "sh", *main["command"]]


def _key(requirements: str, container: Mapping[str, object]) -> str:
    """What an environment depends on beside the Python that it is made for: the packages, the image, and where they come from."""
    env = container["env"]
    assert isinstance(env, list), "variables of a container are a list"
    source = sorted(f"{each['name']}={each['value']}" for each in env if each["name"].startswith(("UV_", "PIP_")))
    text = "\0".join([requirements, str(container["image"]), *source])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def failure(container: str, code: int, said: str) -> str:
    """What a step died of, in words; empty when it is none of ours."""
    if container not in (CONTAINER, _TOOL_CONTAINER):
        return ""
    return f"its requirements could not be installed (exit code {code}): {said or 'the image must have /bin/sh and Python'}"
