"""What documents may hold at most."""

from __future__ import annotations

import pytest

from paddleflow.errors import Invalid
from paddleflow.spec.cluster import ClusterChange
from paddleflow.spec.document import parse
from paddleflow.spec.job import MOST_REQUIREMENTS, MOST_SECRETS, SingleJob

JOB = {"command": "true", "flavour": {"cpu": "1", "mem": "1Gi"}}


def refused(**more: object) -> str:
    with pytest.raises(Invalid) as raised:
        parse(SingleJob, {**JOB, **more})
    return str(raised.value)


def test_requirements_are_short_and_name_no_files_of_the_sender() -> None:
    line = "a\n"
    parse(SingleJob, {**JOB, "requirements": line * (MOST_REQUIREMENTS // len(line))})
    assert "at most 65536" in refused(requirements=line * (MOST_REQUIREMENTS // len(line)) + "b")
    for text in ("-r other.txt", "a\n  --requirement=other.txt", "-e .", "-c c.txt"):
        assert "file of your machine" in refused(requirements=text)


def test_a_member_has_few_secrets() -> None:
    secrets = [{"name": f"s{number}", "env": f"S{number}"} for number in range(MOST_SECRETS + 1)]
    parse(SingleJob, {**JOB, "secrets": secrets[:-1]})
    assert f"at most {MOST_SECRETS}" in refused(secrets=secrets)


def test_a_kubeconfig_has_a_megabyte_at_most() -> None:
    parse(ClusterChange, {"credential": "x" * 2**20})
    with pytest.raises(Invalid, match="credential"):
        parse(ClusterChange, {"credential": "x" * (2**20 + 1)})
