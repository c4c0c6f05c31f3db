"""Valid pipeline documents become the model, completely."""

from __future__ import annotations

import pytest

from paddleflow.spec.pipeline.document import dump, read, read_json, to_document
from paddleflow.spec.pipeline.model import Cache, Dag, FsMount, FsScope, Parameter, Retry, Step
from paddleflow.spec.pipeline.run_request import bind
from tests import pipeline_documents as documents


def step(component: object) -> Step:
    assert isinstance(component, Step)
    return component


def dag(component: object) -> Dag:
    assert isinstance(component, Dag)
    return component


def test_a_plain_pipeline() -> None:
    pipeline = read(documents.BASE)
    assert (pipeline.name, pipeline.docker_env, pipeline.parallelism) == ("base_pipeline", "nginx:1.7.9", 1)
    train = step(pipeline.entry_points["train"])
    assert train.deps == ("preprocess",)
    assert train.parameters["epoch"] == Parameter(5)
    assert train.parameters["train_data"] == Parameter("{{preprocess.data_path}}")
    assert step(pipeline.entry_points["preprocess"]).docker_env == "centos:centos7"
    assert (train.mark.line, train.mark.column) == (12, 3)


def test_artifacts_storages_cache_and_what_comes_after() -> None:
    pipeline = read(documents.ARTIFACTS)
    assert pipeline.main_fs == FsMount("ppl", "/home/paddleflow/mnt", "a/b")
    assert pipeline.strategy == "continue"
    assert pipeline.disabled == {"validate"}
    train = step(pipeline.entry_points["train"])
    assert train.inputs == {"train_data": "{{preprocess.train_data}}"}
    assert train.outputs == ("train_model",)
    assert train.cache == Cache(True, 400, (FsScope("ppl", ("shells", "data")),))
    assert train.extra_fs == (FsMount("other", read_only=True),)
    assert train.parameters == {"epoch": Parameter(15, "int")}
    assert step(pipeline.post_process).cache == Cache()


def test_references_become_copies_with_what_they_give() -> None:
    pipeline = read(documents.REFERENCES)
    process = dag(pipeline.entry_points["process"])
    assert process.deps == ("randint",)
    assert process.inputs == {"data": "{{randint.random_num}}"}
    assert process.outputs == {"result": "{{collector.collection}}"}
    split = step(process.children["split"])
    assert split.name == "split"
    assert split.command == "python3 split.py {{threshold}}"
    assert split.parameters == {"threshold": Parameter("{{PF_PARENT.limit}}")}
    assert split.outputs == ("negative", "positive")


def test_jobs_retry_and_timeout() -> None:
    pipeline = read(documents.JOBS)
    train = step(pipeline.entry_points["train"])
    assert train.retry == Retry(2, 5.0, 3.0, 60.0, (1, 137))
    assert train.timeout == 5400
    assert train.job == {
        "framework": "paddle",
        "schedulingPolicy": {"queue": "default-queue", "priority": "HIGH"},
        "members": [
            {
                "role": "worker",
                "replicas": 2,
                "command": "python train.py {{epochs}} {{out}}",
                "flavour": {"cpu": "1", "mem": "1Gi", "scalarResources": {"nvidia.com/gpu": "1"}},
                "env": {"SEED": "7"},
            }
        ],
    }
    single = step(pipeline.entry_points["single"])
    assert single.job == {"flavour": {"name": "flavour1"}, "port": 8080, "labels": {"team": "vision"}}
    assert (single.retry, single.timeout) == (Retry(3), 90)


def test_loops() -> None:
    pipeline = read(documents.LOOPS)
    assert pipeline.entry_points["over-list"].loop_argument == [1, "two", 3.5, [4, 5]]
    assert pipeline.entry_points["over-nothing"].loop_argument == []
    assert pipeline.entry_points["over-text"].loop_argument == "[1, 2, 3]"


def test_the_json_of_runjson() -> None:
    pipeline = read_json(
        {
            "name": "by_json",
            "dockerEnv": "python:3.7",
            "flavour": "flavour1",
            "queue": "q1",
            "jobType": "single",
            "env": {"A": "all", "B": 2},
            "username": "somebody",
            "description": "words",
            "failureOptions": {"strategy": "continue"},
            "fsOptions": {"mainFS": {"name": "ppl", "mountPath": "/mnt/x", "sub_path": "s"}},
            "cache": {"enable": True, "maxExpiredTime": "300"},
            "entryPoints": {
                "one": {"command": "true", "env": {"A": "own"}, "flavour": "flavour2", "loopArgument": [1]},
                "two": {"entryPoints": {"in": {"command": "true", "extraFS": [{"name": "more", "readOnly": True}]}}},
            },
            "postProcess": {"after": {"command": "true"}},
        }
    )
    one = step(pipeline.entry_points["one"])
    assert one.env == {
        "A": "own",
        "B": "2",
        "PF_JOB_FLAVOUR": "flavour2",
        "PF_JOB_QUEUE_NAME": "q1",
        "PF_JOB_TYPE": "single",
    }
    assert one.cache == Cache(True, 300)
    assert pipeline.main_fs == FsMount("ppl", "/mnt/x", "s")
    inner = step(dag(pipeline.entry_points["two"]).children["in"])
    assert inner.extra_fs == (FsMount("more", read_only=True),)
    assert step(pipeline.post_process).env["A"] == "all"


@pytest.mark.parametrize("name", documents.ALL)
def test_a_document_again_says_the_same(name: str) -> None:
    pipeline = read(documents.ALL[name])
    assert read(dump(to_document(pipeline))) == pipeline
    bound = bind(pipeline)
    assert read(dump(to_document(bound))) == bound
