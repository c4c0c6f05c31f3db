"""The JSON Schema (draft 2020-12) of pipeline documents, for editors: completion, descriptions, first faults while typing.

It says what a document looks like; the rules between its parts are those of `document.read`. It is written in the words of YAML.
"""

from __future__ import annotations

from typing import Any

from paddleflow.base import names
from paddleflow.spec.pipeline.document import MOST_PARALLELISM
from paddleflow.spec.pipeline.jobs import MOST_REPLICAS, PRIORITIES
from paddleflow.spec.pipeline.model import CONTINUE, DEFAULT_PARALLELISM, FAIL_FAST
from paddleflow.spec.pipeline.options import MOST_RETRIES
from paddleflow.spec.pipeline.parameters import TYPES
from paddleflow.spec.pipeline.reader import COMPONENT, PIPELINE, STEP_VARIABLE, VARIABLE
from paddleflow.spec.pipeline.validation import MOST_LOOP_ITEMS

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> Schema:
    """The whole schema."""
    return {
        "$schema": DIALECT,
        "title": "PaddleFlow pipeline",
        "description": "A workflow of steps: what runs, in which order, with which parameters and artifacts.",
        **_object(
            {
                "name": _text("Name of the pipeline and of its runs.", pattern=f"^{PIPELINE.pattern.pattern}$"),
                "docker_env": _ref("image", "Image of all steps that name none."),
                "parallelism": {
                    "type": "integer",
                    "minimum": 0,
                    "default": DEFAULT_PARALLELISM,
                    "description": f"How many steps run at once; more than {MOST_PARALLELISM} counts as {MOST_PARALLELISM}.",
                },
                "entry_points": _ref("components", "The steps and dags of the pipeline."),
                "components": _ref("components", "Steps and dags that run only where a step refers to them."),
                "cache": _ref("cache", "For all steps that say nothing else."),
                "disabled": _ref("words", "Full names of components that do not run, with commas between."),
                "failure_options": _object(
                    {"strategy": {"enum": [FAIL_FAST, CONTINUE], "default": FAIL_FAST}},
                    "What a failed step does to the others.",
                ),
                "post_process": {
                    "type": "object",
                    "maxProperties": 1,
                    "propertyNames": {"pattern": f"^{COMPONENT.pattern.pattern}$"},
                    "additionalProperties": {"$ref": "#/$defs/step"},
                    "description": "One step that runs after all others, however they ended.",
                },
                "fs_options": _object(
                    {
                        "main_fs": _ref("mount", "Where artifacts are kept; the working directory of steps."),
                        "extra_fs": {"type": "array", "items": {"$ref": "#/$defs/mount"}},
                    },
                    "Storages that all steps see.",
                ),
            },
            required=["name", "entry_points"],
        ),
        "$defs": {**_definitions(), **_given(), **_options(), **JOB_DEFINITIONS},
    }


def _object(properties: Schema, description: str = "", required: list[str] | None = None) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return {**schema, "description": description} if description else schema


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", **more, "description": description}


def _ref(name: str, description: str) -> Schema:
    return {"$ref": f"#/$defs/{name}", "description": description}


def _shared() -> Schema:
    """What steps and dags have in common."""
    return {
        "name": _text("Ignored: the key is the name."),
        "deps": _ref("words", "Components that must have ended well before, with commas between."),
        "parameters": {
            "type": "object",
            "propertyNames": {"pattern": f"^{VARIABLE.pattern.pattern}$"},
            "additionalProperties": {"$ref": "#/$defs/parameter"},
            "description": "Values for templates: {{name}} here, {{component.name}} downstream.",
        },
        "condition": _text("Runs only if this holds: {{accuracy}} > 0.9"),
        "loop_argument": {
            "anyOf": [{"type": "array", "maxItems": MOST_LOOP_ITEMS}, {"type": "string"}],
            "description": "Once for each element of a list, of a JSON list as text, or of what one template names.",
        },
    }


def _artifacts(output: Schema) -> Schema:
    templates = {
        "type": "object",
        "propertyNames": {"pattern": f"^{VARIABLE.pattern.pattern}$"},
        "additionalProperties": {"type": ["string", "null"]},
    }
    description = "Files and folders from upstream: {{component.output}} or {{PF_PARENT.input}}."
    return _object({"input": {**templates, "description": description}, "output": output})


def _step() -> Schema:
    output = {
        "anyOf": [
            {"type": "array", "items": {"type": "string", "pattern": f"^{VARIABLE.pattern.pattern}$"}},
            {"type": "object", "propertyNames": {"pattern": f"^{VARIABLE.pattern.pattern}$"}},
        ],
        "description": "Names of what the step makes; {{name}} in its command is the path.",
    }
    return _object(
        {
            **_shared(),
            "type": {"enum": ["step", ""]},
            "command": _text("What the step runs, read by the shell."),
            "env": _ref("env", "Environment of the step; numbers are taken as they are written."),
            "docker_env": _ref("image", "Image of this step."),
            "artifacts": _artifacts(output),
            "cache": _ref("cache", "Whether this step may be served from an earlier run."),
            "extra_fs": {"type": "array", "items": {"$ref": "#/$defs/mount"}, "description": "Further storages."},
            "reference": _object(
                {"component": _text("Name of a component.")}, "This step is a copy of that component.", ["component"]
            ),
            "job": _ref("job", "A job of any kind, in the words of the job API."),
            "retry": _ref("retry", "How often, and after which exits, it is tried again."),
            "timeout": _ref("seconds", "How long one try may run."),
            "secrets": _ref("secrets", "Secrets that the step is given."),
            "code": _ref("code", "Folder that the step runs in; the client sends a snapshot of it."),
            "requirements": _ref("requirements", "Python packages that are installed for the step."),
            "flavour": _text("Short for env PF_JOB_FLAVOUR."),
            "queue": _text("Short for env PF_JOB_QUEUE_NAME."),
            "job_type": _text("Short for env PF_JOB_TYPE."),
        },
        "One command, or one job.",
    )


def _dag() -> Schema:
    output = {
        "type": "object",
        "propertyNames": {"pattern": f"^{VARIABLE.pattern.pattern}$"},
        "additionalProperties": {"type": "string"},
        "description": "What leaves the dag: {{child.output}}.",
    }
    return _object(
        {
            **_shared(),
            "type": {"enum": ["dag", ""]},
            "artifacts": _artifacts(output),
            "entry_points": _ref("components", "What the dag is made of."),
        },
        "A component made of components.",
        ["entry_points"],
    )


def _definitions() -> Schema:
    return {
        "components": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": f"^{COMPONENT.pattern.pattern}$"},
            "additionalProperties": {
                "if": {"type": "object", "required": ["entry_points"]},
                "then": {"$ref": "#/$defs/dag"},
                "else": {"$ref": "#/$defs/step"},
            },
        },
        "step": _step(),
        "dag": _dag(),
        "parameter": {
            "anyOf": [
                {"type": ["string", "number", "array"]},
                _object({"type": {"enum": list(TYPES)}, "default": {}}, "A value with its type.", ["default"]),
            ]
        },
        "env": {
            "type": "object",
            "propertyNames": {"pattern": f"^{STEP_VARIABLE.pattern.pattern}$"},
            "additionalProperties": {"type": ["string", "number", "null"]},
        },
        "image": {"type": "string", "not": {"pattern": r"\.tar$"}},
        "words": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "requirements": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    }


def _given() -> Schema:
    """What a step is given: secrets and code."""
    return {
        "secrets": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"type": "string", "description": "NAME or NAME=VARIABLE."},
                    _object(
                        {
                            "name": _text("Name of the secret."),
                            "env": _text("Variable that holds its value."),
                            "file": _text("File with its value, in the folder of the variable PF_SECRETS_DIR."),
                        },
                        "A secret, and where the step finds it.",
                        ["name"],
                    ),
                ]
            },
        },
        "code": {
            "anyOf": [
                {"type": "string", "description": "A folder, relative to the document."},
                _object(
                    {
                        "folder": _text("The same."),
                        "snapshot": _text("Id of a snapshot that the server has."),
                        "workdir": _text("Folder below it that the command starts in."),
                        "files": {"type": "integer"},
                        "size": {"type": "integer"},
                        "git": {"type": "object"},
                    },
                    "A folder, or its snapshot.",
                ),
            ]
        },
    }


def _options() -> Schema:
    """The blocks of options.py."""
    boolean = {"anyOf": [{"type": "boolean"}, {"enum": ["yes", "no", "on", "off"]}]}
    return {
        "cache": _object(
            {
                "enable": boolean,
                "max_expired_time": {
                    "anyOf": [{"type": "integer", "minimum": -1}, {"type": "string", "pattern": "^(-1|[0-9]+)$"}],
                    "default": -1,
                    "description": "Seconds that a result counts; -1: for ever.",
                },
                "fs_scope": {
                    "type": "array",
                    "items": _object(
                        {"name": _text("A storage."), "path": _ref("words", "Paths in it.")}, "", ["name"]
                    ),
                    "description": "Where a change makes results stale.",
                },
            }
        ),
        "mount": _object(
            {
                "name": _text("Name of the storage.", pattern=f"^{names.STORAGE.pattern.pattern}$"),
                "mount_path": _text("Where steps see it.", pattern="^(/.*)?$"),
                "sub_path": _text("What of it they see.", pattern="^([^/].*)?$"),
                "read_only": boolean,
            },
            "A storage.",
            ["name"],
        ),
        "seconds": {
            "anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}],
            "description": "Seconds, or a text such as 30m or 1h30m.",
        },
        "retry": {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MOST_RETRIES},
                _object(
                    {
                        "times": {"type": "integer", "minimum": 0, "maximum": MOST_RETRIES},
                        "delay": _ref("seconds", "Before the first new try; 1 if not given."),
                        "factor": {"type": "number", "minimum": 1, "maximum": 100, "default": 2},
                        "most": _ref("seconds", "No wait is longer; 300 if not given."),
                        "exit_codes": {
                            "type": "array",
                            "items": {"type": "integer", "minimum": 1, "maximum": 255},
                            "description": "Only after these; any failure if not given.",
                        },
                    },
                    "How it is tried again.",
                    ["times"],
                ),
            ]
        },
    }


_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
_AMOUNT: dict[str, Any] = {"type": ["string", "number"]}
_WORDS: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "number"]}}]}

_FLAVOUR: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "cpu": _AMOUNT,
                "mem": _AMOUNT,
                "memory": _AMOUNT,
                "scalarResources": _TEXTS,
            },
            "additionalProperties": False,
        },
    ]
}
_MOUNT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "mountPath": {"type": "string"},
        "subPath": {"type": "string"},
        "readOnly": {"type": "boolean"},
    },
    "required": ["name"],
    "additionalProperties": False,
}
_POLICY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "queue": {"type": "string"},
        "priority": {"enum": [*PRIORITIES, *(word.lower() for word in PRIORITIES)]},
    },
    "additionalProperties": False,
}
_SPEC: dict[str, Any] = {
    "name": {"type": "string"},
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "schedulingPolicy": _POLICY,
    "scheduling_policy": _POLICY,
    "flavour": _FLAVOUR,
    "limitFlavour": _FLAVOUR,
    "fs": _MOUNT,
    "extraFS": {"type": "array", "items": _MOUNT},
    "image": {"type": "string"},
    "env": _TEXTS,
    "command": _WORDS,
    "args": _WORDS,
    "port": {"type": "integer", "minimum": 0, "maximum": 65534},
    "extensionTemplate": {"type": "object"},
}

JOB_DEFINITIONS: dict[str, Any] = {
    "job": {
        "type": "object",
        "properties": {
            "framework": {"type": "string", "description": "paddle, pytorch, tensorflow, mpi, ray, spark, mxnet"},
            "members": {"type": "array", "items": {"$ref": "#/$defs/member"}},
            **_SPEC,
        },
        "additionalProperties": False,
    },
    "member": {
        "type": "object",
        "properties": {
            "role": {"type": "string", "description": "worker, pserver, master, driver, executor"},
            "replicas": {"type": "integer", "minimum": 1, "maximum": MOST_REPLICAS},
            **_SPEC,
        },
        "required": ["role"],
        "additionalProperties": False,
    },
}
