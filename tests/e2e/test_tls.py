"""HTTPS as people switch it on, with a certificate that is renewed while the server runs."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.conftest import PADDLEFLOW, ServerProcess
from tests.patience import PATIENCE, eventually


def make_certificate(folder: Path, name: str) -> None:
    """A certificate for this machine, signed by itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    subprocess.run(
        [
            openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
            "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
            "-keyout", str(folder / "new.key"), "-out", str(folder / "new.pem"),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "new.key").replace(folder / "server.key")
    (folder / "new.pem").replace(folder / "server.pem")


def subject(url: str) -> str:
    """Who the server says it is."""
    host, _, port = url.removeprefix("https://").partition(":")
    raw = ssl.get_server_certificate((host, int(port)), timeout=PATIENCE)
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-subject"], input=raw, capture_output=True, text=True, check=True
    )
    return shown.stdout


@pytest.mark.timeout(200)
def test_a_server_speaks_https_and_takes_up_a_new_certificate(tmp_path: Path) -> None:
    make_certificate(tmp_path, "first")
    files = {
        "PADDLEFLOW_SERVER_TLS_CERT": str(tmp_path / "server.pem"),
        "PADDLEFLOW_SERVER_TLS_KEY": str(tmp_path / "server.key"),
    }
    server = ServerProcess(tmp_path / "data", {**files, "SSL_CERT_FILE": str(tmp_path / "server.pem")}).start()
    try:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
        with urllib.request.urlopen(f"{server.url}/healthz", context=context, timeout=PATIENCE) as answer:
            assert json.load(answer) == {"status": "ok"}
        assert "root" in server.cli("whoami", "-o", "name").stdout
        assert "first" in subject(server.url)
        make_certificate(tmp_path, "second")
        eventually(lambda: "second" in subject(server.url), "the new certificate is used")
    finally:
        server.stop()


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    make_certificate(tmp_path, "first")
    (tmp_path / "server.key").write_text("no key")
    done = subprocess.run(
        [
            PADDLEFLOW, "server", "--port", "0", "--data", str(tmp_path / "data"),
            "--tls-cert", str(tmp_path / "server.pem"), "--tls-key", str(tmp_path / "server.key"),
        ],
        capture_output=True, text=True, timeout=PATIENCE, check=False, env={"PADDLEFLOW_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 1
    assert f"certificate {tmp_path / 'server.pem'} with key {tmp_path / 'server.key'}" in done.stderr
