"""Where the API server is: kubeconfig files and service accounts, and what is wrong with them in words."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddleflow.errors import Invalid
from paddleflow.kube.config import find, from_kubeconfig, in_cluster
from paddleflow.settings import KubernetesEnvironment, kubernetes_environment


def write(folder: Path, cluster: dict[str, Any], user: dict[str, Any], **more: Any) -> Path:
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **more}}],
        "current-context": "here",
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(document))
    return file


async def test_a_plain_address_with_a_token(tmp_path: Path) -> None:
    endpoint = from_kubeconfig(write(tmp_path, {"server": "http://127.0.0.1:8080/k8s/"}, {"token": "t"}, namespace="n"))
    assert (endpoint.host, endpoint.port, endpoint.prefix, endpoint.tls) == ("127.0.0.1", 8080, "/k8s", None)
    assert ((await endpoint.credentials.get()).token, endpoint.namespace) == ("t", "n")
    assert str(endpoint) == "http://127.0.0.1:8080/k8s"


def test_tls_is_checked_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    strict = from_kubeconfig(write(tmp_path, {"server": "https://[::1]"}, {})).tls
    assert strict is not None
    assert strict.verify_mode == ssl.CERT_REQUIRED
    lax = from_kubeconfig(write(tmp_path, {"server": "https://h", "insecure-skip-tls-verify": True}, {})).tls
    assert lax is not None
    assert lax.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({"server": "https://h"}, {"exec": {"command": "x"}}, "apiVersion '' is not supported"),
        ({"server": "https://h"}, {"auth-provider": {"name": "gcp"}}, "authenticates by auth-provider"),
        ({"server": "https://h", "proxy-url": "socks5://p"}, {}, "proxy-url: .* type socks5"),
        ({"server": "ftp://h"}, {}, "'ftp://h' is not an http"),
        ({}, {}, "None is not an http"),
        ({"server": "https://h", "certificate-authority": "nowhere.crt"}, {}, "certificates: .*No such file"),
        ({"server": "https://h", "certificate-authority-data": "%%%"}, {}, "certificates"),
        ({"server": "https://h", "certificate-authority-data": base64.b64encode(b"no").decode()}, {}, "certificates"),
        ({"server": "https://h"}, {"client-certificate": "nowhere.crt"}, "certificates"),
        ({"server": "https://h"}, {"tokenFile": "nowhere"}, "tokenFile"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        from_kubeconfig(write(tmp_path, cluster, user))


def test_a_context_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no context named 'x'") as caught:
        from_kubeconfig(write(tmp_path, {"server": "http://h"}, {}), "x")
    assert caught.value.hint == "it has: here"
    with pytest.raises(Invalid, match="nowhere"):
        from_kubeconfig(tmp_path / "nowhere")
    (tmp_path / "list").write_text("- 1")
    with pytest.raises(Invalid, match="not a mapping but list"):
        from_kubeconfig(tmp_path / "list")


def test_a_pod_without_a_service_account_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="service account") as caught:
        in_cluster(KubernetesEnvironment("10.0.0.1", "443"), tmp_path)
    assert "automountServiceAccountToken" in caught.value.hint


def test_what_was_named_wins_over_the_pod_and_the_pod_over_the_users_file(tmp_path: Path) -> None:
    file = write(tmp_path, {"server": "http://127.0.0.1:1"}, {})
    pod = KubernetesEnvironment("10.0.0.1", "443", str(file))
    assert find(pod, file).port == 1
    with pytest.raises(Invalid, match="service account"):
        find(pod)
    assert find(KubernetesEnvironment(kubeconfig=str(file))).port == 1
    with pytest.raises(Invalid, match="no Kubernetes"):
        find(KubernetesEnvironment())


def test_proxies_and_files_are_read_from_the_environment(tmp_path: Path) -> None:
    assert kubernetes_environment({"HOME": str(tmp_path)}) == KubernetesEnvironment()
    given = {
        "HOME": str(tmp_path),
        "KUBERNETES_SERVICE_HOST": "h",
        "KUBERNETES_SERVICE_PORT": "1",
        "KUBECONFIG": "f",
        "https_proxy": "p",
    }
    assert kubernetes_environment(given) == KubernetesEnvironment("h", "1", "f", https_proxy="p")
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("")
    assert kubernetes_environment({"HOME": str(tmp_path)}).kubeconfig == str(tmp_path / ".kube" / "config")


async def test_several_files_are_merged_and_the_first_one_counts(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = write(tmp_path / "a", {"server": "http://one"}, {"tokenFile": "token"})
    two = write(tmp_path / "b", {"server": "http://two"}, {"token": "t"})
    (tmp_path / "a" / "token").write_text("beside its file")
    document = yaml.safe_load(two.read_text())
    document["contexts"].append({"name": "there", "context": {"cluster": "c", "user": "u", "namespace": "n"}})
    two.write_text(yaml.safe_dump(document))
    files = KubernetesEnvironment(kubeconfig=f"{tmp_path / 'nowhere'}:{one}:{two}")
    assert find(files).host == "one"
    found = find(files, context="there")
    assert (found.host, found.namespace, (await found.credentials.get()).token) == ("one", "n", "beside its file")
