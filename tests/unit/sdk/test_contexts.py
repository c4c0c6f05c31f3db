"""Contexts: what is saved, who may read it, and which one is used."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from paddleflow.errors import Invalid, NotFound
from paddleflow.sdk import contexts
from paddleflow.sdk.contexts import Context, Contexts

INI = "[user]\nname = root\npassword = p%w\n[server]\npaddleflow_server_host = {host}\npaddleflow_server_port = 9000\n"


def write_ini(file: Path, host: str = "train") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(INI.format(host=host))
    return file


def test_what_is_saved_is_for_its_owner_only(home: Path) -> None:
    file = contexts.save("one", Context("http://one:1", "alice", "t1"), current=False)
    assert file == home / "contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert contexts.load() == Contexts("one", {"one": Context("http://one:1", "alice", "t1")})
    assert [path.name for path in home.iterdir()] == ["contexts.json"], "no draft stays behind"


def test_the_server_saves_a_ready_context_without_taking_over(home: Path) -> None:
    contexts.save_local("http://127.0.0.1:8999", "root", "t")
    assert contexts.load().current == "local"
    contexts.save("team", Context("http://team:1"), current=True)
    contexts.save_local("http://127.0.0.1:9999", "root", "t2")
    assert contexts.load().current == "team"
    assert contexts.load().by_name["local"] == Context("http://127.0.0.1:9999", "root", "t2")


def test_save_local_to_a_folder_of_ones_own(tmp_path: Path) -> None:
    contexts.save_local("http://127.0.0.1:1", "root", "t", tmp_path / "x" / "y")
    assert contexts.load(tmp_path / "x" / "y").current == "local"


def test_use_and_delete(home: Path) -> None:
    contexts.save("one", Context("http://one:1"), current=True)
    contexts.save("two", Context("http://two:1"), current=True)
    contexts.use("one")
    assert contexts.load().current == "one"
    contexts.delete("one")
    assert contexts.load() == Contexts("", {"two": Context("http://two:1")})
    for act in (contexts.use, contexts.delete):
        with pytest.raises(NotFound, match="'one' is not known") as caught:
            act("one")
        assert caught.value.hint == "known: two"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"contexts": {"a": {}}}', '{"contexts": []}', '{"contexts": {"a": 1}}']
)
def test_a_broken_file_is_named(home: Path, text: str) -> None:
    home.mkdir()
    (home / "contexts.json").write_text(text)
    with pytest.raises(Invalid, match=r"contexts\.json cannot be read"):
        contexts.load()


@pytest.mark.parametrize(
    ("host", "server"),
    [
        ("train", "http://train:9000"),
        ("http://train", "http://train:9000"),
        ("train:7000", "http://train:7000"),
        ("https://train/", "https://train:9000"),
        ("httptrain", "http://httptrain:9000"),
    ],
)
def test_the_ini_of_existing_users(tmp_path: Path, host: str, server: str) -> None:
    assert contexts.read_ini(write_ini(tmp_path / "pf.ini", host)) == Context(server, "root", "", "p%w")


@pytest.mark.parametrize("text", ["", "[user]\nname=a\n", "[user]\nname=a\npassword=b\n[server]\n", "nonsense"])
def test_an_ini_that_lacks_something_says_what_it_needs(tmp_path: Path, text: str) -> None:
    file = tmp_path / "pf.ini"
    file.write_text(text)
    with pytest.raises(Invalid, match="cannot be used") as caught:
        contexts.read_ini(file)
    assert "paddleflow_server_host" in caught.value.hint
    with pytest.raises(Invalid, match="cannot be used"):
        contexts.read_ini(tmp_path / "absent.ini")


def test_which_server_is_used(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Context("http://127.0.0.1:8999")
    one, two = Context("http://one:1", "alice", "t1"), Context("http://two:1", "bob", "t2")
    assert contexts.resolve() == here
    ini = write_ini(home / "paddleflow.ini")
    assert contexts.resolve() == contexts.read_ini(ini), "the ini of existing users, where no context is current"
    contexts.save("one", one, current=True)
    contexts.save("two", two, current=False)
    assert contexts.resolve() == one
    monkeypatch.setenv("PADDLEFLOW_SERVER", "two:1")
    assert contexts.resolve() == two, "with the token saved for that address"
    monkeypatch.setenv("PADDLEFLOW_TOKEN", "te")
    assert contexts.resolve() == Context("http://two:1", "bob", "te")
    assert contexts.resolve(context="one") == one, "what is named wins over the environment"
    assert contexts.resolve(server="three:1") == Context("three:1", "", "te")
    assert contexts.resolve(config=ini).server == "http://train:9000"
    with pytest.raises(NotFound):
        contexts.resolve(context="three")
