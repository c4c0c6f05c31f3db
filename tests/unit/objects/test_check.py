"""What is wrong with a store is said before it is used, by the stage that failed."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddleflow.errors import Invalid, TooMany
from paddleflow.objects import check as checks
from paddleflow.objects.check import Stage, Unreachable, check
from paddleflow.objects.urls import SCHEMES, open_store, secret_names
from tests.patience import eventually
from tests.ports import closed_port
from tests.s3_servers import KEYS, S3Server, versitygw


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with versitygw() as made:
        made.bucket()
        yield made


def given(server: S3Server, **changed: str) -> dict[str, str]:
    keys = {"accessKey": KEYS.access_key, "secretKey": KEYS.secret_key, "endpoint": server.endpoint}
    return {name: value for name, value in (keys | changed).items() if value}


def failed_at(url: str, properties: dict[str, str], timeout: float = 60.0) -> Stage:
    with pytest.raises(Unreachable) as raised:
        check(url, properties, timeout=timeout)
    assert raised.value.code == "ConnectivityFailed"
    assert raised.value.stage.value in raised.value.message
    assert KEYS.secret_key not in raised.value.message
    return raised.value.stage


def test_a_bucket(server: S3Server) -> None:
    check("s3://tests/some/prefix", given(server))
    assert failed_at("s3://no-such-bucket", given(server)) is Stage.PATH
    assert failed_at("s3://tests", given(server, secretKey="wrong")) is Stage.CREDENTIALS
    assert failed_at("s3://tests", given(server, accessKey="nobody")) is Stage.CREDENTIALS
    assert failed_at("s3://tests", given(server, accessKey="", secretKey="")) is Stage.PERMISSION
    assert failed_at("s3://tests", given(server, endpoint="http://no-such-host.invalid")) is Stage.NAME
    with closed_port() as port:
        assert failed_at("s3://tests", given(server, endpoint=f"http://127.0.0.1:{port}")) is Stage.PORT


def test_a_folder(tmp_path: Path) -> None:
    check(f"local://{tmp_path}")
    (tmp_path / "file").write_bytes(b"")
    assert failed_at(f"local://{tmp_path}/absent", {}) is Stage.PATH
    assert failed_at(f"file://{tmp_path}/file", {}) is Stage.PATH


def test_a_server_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert failed_at("s3://tests", {"endpoint": endpoint}, timeout=0.5) is Stage.CREDENTIALS


def test_a_server_that_speaks_something_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert failed_at("s3://tests", {"endpoint": endpoint}) is Stage.ANSWER
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_store_that_does_not_answer_keeps_the_places_of_its_owner_only(tmp_path: Path) -> None:
    """Also when the check was answered long ago: what counts are the threads."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = {"endpoint": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        for _ in range(checks.MOST_OF_ONE):
            with pytest.raises(Unreachable):
                check("s3://tests", endpoint, timeout=0.1, owner="mallory")
        with pytest.raises(TooMany, match="4 stores are being tried for mallory already"):
            check("s3://tests", endpoint, timeout=0.1, owner="mallory")
        for _ in range(8):
            check(f"local://{tmp_path}", owner="alice")
            with pytest.raises(Unreachable):
                check(f"local://{tmp_path}/absent", owner="alice")
            eventually(lambda: "alice" not in checks._places, "a place is given back, whatever came of the check")
    eventually(lambda: not checks._places, "the places are free when the server is gone")


@pytest.mark.parametrize(
    ("url", "properties", "words"),
    [
        ("bucket/path", {}, "not the URL"),
        ("loacl://bucket", {}, "did you mean local"),
        ("s3://", {}, "names no server"),
        ("s3://key:secret@bucket", {}, "shown to everybody"),
        ("s3://data", {"acessKey": "x"}, "did you mean accessKey"),
        ("s3://data", {"insecureSkipVerify": "perhaps"}, "neither true nor false"),
        ("s3://data", {"fileMode": "rw"}, "not a mode"),
        ("s3://data", {"accessKey": "x"}, "needs a secretKey"),
        ("local:///data", {"user": "x"}, "it has none"),
    ],
)
def test_what_is_wrong_by_itself(url: str, properties: dict[str, str], words: str) -> None:
    for call in (open_store, check):
        with pytest.raises(Invalid) as raised:
            call(url, properties)
        assert words in raised.value.message + raised.value.hint
        assert not isinstance(raised.value, Unreachable)


def test_secrets_are_known() -> None:
    assert secret_names("s3") == {"secretKey", "sessionToken"}
    assert all("secret" not in each.name.lower() or each.secret for of in SCHEMES.values() for each in of.properties)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    assert failed_at(f"local://{tmp_path}/closed", {}) is Stage.PERMISSION
