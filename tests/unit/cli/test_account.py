"""Login, logout, contexts, completion, the server's start, and how errors are told."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from paddleflow.cli.errors import report
from paddleflow.cli.main import root
from paddleflow.errors import Fault, Internal, Invalid, NotFound, PaddleFlowError
from paddleflow.sdk import contexts
from paddleflow.sdk.contexts import Context
from paddleflow.settings import Settings
from tests.client_stub import Shell, Stub
from tests.ports import closed_port


def call(*words: str, code: int = 0, input: str | None = None) -> tuple[str, str]:
    result = CliRunner().invoke(root, words, input=input, prog_name="paddleflow")
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def test_login_remembers_the_server(stub: Stub) -> None:
    stub.on("POST /login", {"authorization": "tok"})
    out, err = call("login", stub.url, input="alice\nsecret1\n")
    assert out == f"context[127.0.0.1] login success, server[{stub.url}], user[alice]\n"
    assert "username" in err
    assert "secret1" not in out + err
    assert contexts.load().by_name == {"127.0.0.1": Context(stub.url, "alice", "tok")}
    call("login", stub.url, "-u", "alice", "--password-stdin", input="secret1\n")
    assert list(contexts.load().by_name) == ["127.0.0.1"], "the same server and user keep their name"
    call("login", stub.url, "-u", "bob", "--password", "secret1")
    assert contexts.load().current == "bob@127.0.0.1"
    assert [seen.body["username"] for seen in stub.requests] == ["alice", "alice", "bob"]


def test_a_refused_login_saves_nothing(stub: Stub) -> None:
    stub.refuse("POST /login", 401, "AuthFailed", "user or password is wrong")
    _, err = call("login", stub.url, "-u", "alice", "--password", "x", code=1)
    assert "error: user or password is wrong" in err
    assert contexts.load().by_name == {}


def test_input_that_ends_too_early_is_said(stub: Stub) -> None:
    _, err = call("login", stub.url, code=1, input="")
    assert "error: the prompt got no answer: standard input has ended" in err


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("user add alice", "secret1\nsecret1\n"),
        ("user add alice --password-stdin", "secret1\n"),
        ("user set alice", "secret1\nsecret1\n"),
        ("user set alice --password-stdin", "secret1\n"),
    ],
)
def test_a_password_need_not_stand_in_the_command(stub: Stub, words: str, given: str) -> None:
    stub.on("POST /user", {"username": "alice"})
    stub.on("PUT /user/alice", None)
    call("--server", stub.url, *words.split(), input=given)
    assert stub.requests[-1].body["password"] == "secret1"


def test_a_dead_token_of_the_variable_is_named(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts.save("one", Context(stub.url, "alice", "tok"), current=True)
    stub.refuse("GET /whoami", 401, "AuthInvalidToken", "the token is invalid or has expired")
    assert "hint: log in with: paddleflow login\n" in call("whoami", code=1)[1]
    monkeypatch.setenv("PADDLEFLOW_TOKEN", "old")
    assert "hint: the variable PADDLEFLOW_TOKEN is used instead" in call("whoami", code=1)[1]
    assert "hint: log in with: paddleflow login\n" in call("--context", "one", "whoami", code=1)[1]


def test_whoami_shows_the_time_as_tables_do(stub: Stub) -> None:
    stub.on("GET /whoami", {"name": "root", "root": True, "expires": "2026-12-19T05:58:27.805Z"})
    assert "T05:58" not in call("--server", stub.url, "whoami")[0]
    assert "2026-12-" in call("--server", stub.url, "whoami")[0]


def test_logout_ends_the_token_and_forgets_it(stub: Stub) -> None:
    contexts.save("one", Context(stub.url, "alice", "tok"), current=True)
    stub.on("POST /logout", None)
    assert call("logout")[0] == f"logout success, server[{stub.url}]\n"
    assert stub.requests[0].headers["x-pf-authorization"] == "tok"
    assert contexts.load().by_name["one"].token == ""


def test_contexts(home: Path) -> None:
    assert call("context", "list")[0] == "no context found; create one with: paddleflow login\n"
    contexts.save("one", Context("http://one:1", "alice", "tok"), current=True)
    contexts.save("two", Context("http://two:1"), current=False)
    assert (
        call("--output", "text", "context", "list")[0]
        == "*\tone\thttp://one:1\talice\tyes\n\ttwo\thttp://two:1\t\tno\n"
    )
    assert call("context", "use", "two")[0] == "context[two] is current\n"
    assert call("context", "show", "-o", "text")[0] == "*\ttwo\thttp://two:1\t\tno\n"
    assert call("context", "show", "one", "-o", "text")[0] == "\tone\thttp://one:1\talice\tyes\n"
    assert call("context", "delete", "two")[0] == "context[two] delete success\n"
    assert call("context", "use", "two", code=1)[1] == "error: context 'two' is not known\nhint: known: one\n"


def test_the_context_and_the_ini_are_used(stub: Stub, tmp_path: Path) -> None:
    stub.on("GET /user", {"userList": []})
    stub.on("POST /login", {"authorization": "fresh"})
    contexts.save("one", Context(stub.url, "alice", "tok"), current=True)
    contexts.save("two", Context(stub.url, "bob", "tok2"), current=False)
    call("user", "list")
    call("--context", "two", "user", "list")
    host, _, port = stub.url.removeprefix("http://").partition(":")
    ini = tmp_path / "pf.ini"
    ini.write_text(
        f"[user]\nname=root\npassword=pw\n[server]\npaddleflow_server_host={host}\npaddleflow_server_port={port}\n"
    )
    call("--pf_config", str(ini), "user", "list")
    tokens = [seen.headers.get("x-pf-authorization") for seen in stub.requests]
    assert tokens == ["tok", "tok2", None, "fresh"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    out, _ = call("completion", shell)
    assert f"_PADDLEFLOW_COMPLETE={shell}_complete" in out


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("paddleflow jo", "job"), ("paddleflow job wa", "wait"), ("paddleflow job list --st", "--status --starttime")],
)
def test_completion_completes(words: str, wanted: str) -> None:
    env = {"_PADDLEFLOW_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = CliRunner().invoke(root, [], env=env, prog_name="paddleflow")
    assert {line.split(",")[1] for line in result.stdout.splitlines()} == set(wanted.split())


def test_contexts_complete(home: Path) -> None:
    contexts.save("team", Context("http://one:1"), current=True)
    env = {"_PADDLEFLOW_COMPLETE": "bash_complete", "COMP_WORDS": "paddleflow context use t", "COMP_CWORD": "3"}
    assert CliRunner().invoke(root, [], env=env, prog_name="paddleflow").stdout == "plain,team\n"


def test_the_server_gets_its_settings(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Settings] = []
    module = ModuleType("paddleflow.server.main")

    def run(settings: Settings) -> int:
        started.append(settings)
        return 7

    vars(module)["run"] = run
    monkeypatch.setitem(sys.modules, "paddleflow.server.main", module)
    file = tmp_path / "settings.toml"
    file.write_text('[server]\nport = 1\nhost = "h"\n[local]\ngrace = 2\n')
    call("server", "--port", "0", "--data", str(tmp_path), "--config", str(file), code=7)
    (settings,) = started
    assert (settings.server.port, settings.server.host, settings.server.data) == (0, "h", str(tmp_path))
    assert settings.local.grace == 2
    file.write_text("[server]\nprot = 1\n")
    assert "server.prot" in call("server", "--config", str(file), code=1)[1]


def test_a_missing_extra_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "paddleflow.server.main":
                raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")

    monkeypatch.delitem(sys.modules, "paddleflow.server.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    assert call("server", code=1)[1] == (
        "error: the server needs uvicorn, which is not installed\nhint: pip install 'paddleflow[server]'\n"
    )


def test_nobody_there(home: Path) -> None:
    with closed_port() as port:
        assert call("--server", f"127.0.0.1:{port}", "job", "list", code=1) == (
            "",
            f"error: cannot reach http://127.0.0.1:{port}: Connection refused\n"
            "hint: is the server running? start it with: paddleflow server\n",
        )


def told(error: PaddleFlowError, capsys: pytest.CaptureFixture[str]) -> str:
    report(error)
    return capsys.readouterr().err


def test_errors_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(NotFound("job[x] is not there", hint="job list shows them"), capsys) == snapshot(
        """\
error: job[x] is not there
hint: job list shows them
"""
    )
    faults = [
        Fault("port", "must be in range [0, 65534]"),
        Fault("imge", "is not a known field", "did you mean image?"),
    ]
    assert told(Invalid.of(faults), capsys) == snapshot(
        """\
error: found 2 errors
  - port: must be in range [0, 65534]
  - imge: is not a known field (did you mean image?)
"""
    )
    assert told(Invalid.of(faults[1:]), capsys) == snapshot(
        """\
error: imge: is not a known field
hint: did you mean image?
"""
    )
    broken = Internal("a fault of ours")
    broken.request_id = "r-9"
    assert told(broken, capsys) == "error: a fault of ours\nrequest id: r-9\n"


def test_a_traceback_ends_with_the_hint() -> None:
    shown = traceback.format_exception(NotFound("job[x] is not there", hint="job list shows them"))
    assert shown[-1] == "hint: job list shows them\n"


def test_a_wrong_call_shows_the_usage(shell: Shell) -> None:
    result = shell("queue", "create", "q", code=2)
    assert result.stderr == snapshot(
        """\
Usage: paddleflow queue create [OPTIONS] NAME NAMESPACE MAXCPU MAXMEM
error: Missing argument 'NAMESPACE'.
hint: paddleflow queue create --help
"""
    )
    assert result.stdout == ""
    assert "error: No such command 'jobs', did you mean job?" in shell("jobs", code=2).stderr  # it comes late
    assert "error: No such command 'lst', did you mean list?" in shell("job", "lst", code=2).stderr
    assert "error: No such command 'xyz', known: add, delete, list, set" in shell("user", "xyz", code=2).stderr
    assert "is not of the form name=value" in shell("job", "list", "-l", "ab", code=2).stderr
