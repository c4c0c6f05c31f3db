"""Text of somebody else: for a terminal, and for an answer."""

from __future__ import annotations

import json
import logging

import pytest

from paddleflow.base.text import as_utf8, printable
from paddleflow.server.logs import configure


def test_a_terminal_is_sent_no_commands_and_no_change_of_direction() -> None:
    assert printable("a\tb\n\u00e9\u4e2d") == "a\tb\n\u00e9\u4e2d"
    assert printable("\x1b]0;x\x07\x9b2J\r") == "\\x1b]0;x\\x07\\x9b2J\\x0d"
    assert printable("\u202egpj.exe\u2066") == "\\u202egpj.exe\\u2066"
    assert printable("caf\udce9") == "caf\\udce9"


def test_what_is_not_unicode_is_shown() -> None:
    assert as_utf8("caf\udce9 \ud800") == "caf\\udce9 \\ud800"
    assert as_utf8("\u00e9") == "\u00e9"


@pytest.fixture
def loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as before afterwards."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)


@pytest.mark.usefixtures("loggers")
def test_lines_of_the_log_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "text")
    logging.getLogger("paddleflow.x").info("GET %s", "/\x1b[2J\udce9", extra={"fields": {"path": "\x1b[2J"}})
    assert "GET /\\x1b[2J\\udce9  path=\\x1b[2J" in capsys.readouterr().err


@pytest.mark.usefixtures("loggers")
def test_lines_for_machines_are_utf8_and_libraries_that_tell_of_each_connection_are_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("info", "json")
    logging.getLogger("paddleflow.x").info("GET /\udce9")
    logging.getLogger("asyncssh").info("a user has connected to a store")
    (line,) = capsys.readouterr().err.encode().splitlines()
    assert json.loads(line)["event"] == "GET /\udce9"
