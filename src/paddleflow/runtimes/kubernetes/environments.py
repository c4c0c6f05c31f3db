"""Packages of a job in its pod: two steps before its container make a virtual environment of its image's own Python. Pure.

The first has the platform's image, and brings uv; the second has the job's image, so that what it builds fits, and the job's variables, so that
the same index is asked as on one machine. The environment is the pod's own: users who share a node share nothing that one of them built.
"""

from __future__ import annotations

from paddleflow.kube.resources import Object

CONTAINER = "requirements"
_TOOL_CONTAINER = "installer"
_FOLDER, _TOOLS = "/paddleflow/environment", "/paddleflow/tools"
_VARIABLE = "PF_REQUIREMENTS"
_BRING = f"import shutil, uv; shutil.copy(uv.find_uv_bin(), '{_TOOLS}/uv')"
_BUILD = f"""\
python=$(command -v python3 || command -v python) || {{ echo "the image has no Python" >&2; exit 1; }}
{_TOOLS}/uv venv --quiet --allow-existing --python "$python" {_FOLDER} &&
printf '%s' "${_VARIABLE}" | {_TOOLS}/uv pip install --no-progress --python {_FOLDER}/bin/python -r -
"""
_ENTER = f'export VIRTUAL_ENV={_FOLDER} PATH="{_FOLDER}/bin:$PATH"; unset PYTHONHOME; exec "$@"'


def add(spec: Object, requirements: str, platform_image: str) -> None:
    """Have packages installed before the job's container starts, and found by its command."""
    main = spec["containers"][0]
    environment, tools = {"name": "environment", "mountPath": _FOLDER}, {"name": "tools", "mountPath": _TOOLS}
    spec["volumes"] += [{"name": "environment", "emptyDir": {}}, {"name": "tools", "emptyDir": {}}]
    no_rights = {"allowPrivilegeEscalation": False}
    literal = requirements.replace("$", "$$")
    cache = {"name": "UV_CACHE_DIR", "value": f"{_FOLDER}/.cache"}
    spec["initContainers"] = [
        *(spec.get("initContainers") or ()),
        {
            "name": _TOOL_CONTAINER,
            "image": platform_image,
            "command": ["python3", "-c", _BRING],
            "volumeMounts": [tools],
            "resources": main["resources"],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": no_rights,
        },
        {
            "name": CONTAINER,
            "image": main["image"],
            "command": ["/bin/sh", "-c", _BUILD],
            "env": [cache, *main["env"], {"name": _VARIABLE, "value": literal}],
            "volumeMounts": [environment, tools],
            "resources": main["resources"],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": no_rights,
        },
    ]
    main["volumeMounts"].append(environment)
    main["command"] = ["/bin/sh", "-c", _ENTER, "sh", *main["command"]]


def failure(container: str, code: int, said: str) -> str:
    """What a step died of, in words; empty when it is none of ours."""
    if container not in (CONTAINER, _TOOL_CONTAINER):
        return ""
    return f"its requirements could not be installed (exit code {code}): {said or 'the image must have /bin/sh and Python'}"
