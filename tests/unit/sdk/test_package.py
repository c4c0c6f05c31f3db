"""The package as people meet it in an interpreter."""

from __future__ import annotations

import pickle
import pydoc
import re

import pytest

import paddleflow
from paddleflow.sdk.client import PaddleFlow
from paddleflow.sdk.transport import Transport


def test_help_of_the_package_describes_what_it_offers() -> None:
    shown = pydoc.plain(pydoc.render_doc(paddleflow))
    assert "class PaddleFlow(" in shown
    assert re.search(r"connect\(\s*server", shown), "newer Pythons break long signatures"
    assert {"connect", "PaddleFlow", "Client"} <= set(dir(paddleflow))


def test_pickling_a_client_is_refused_with_what_to_do() -> None:
    client = PaddleFlow(Transport("127.0.0.1:9", token="secret"))
    with pytest.raises(TypeError, match=r"cannot be pickled: .* connect\(\) there again"):
        pickle.dumps(client.jobs)
