"""Settings: file and environment, every wrong one at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddleflow.errors import Invalid
from paddleflow.settings import load, unknown_variables


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "paddleflow.toml"
    file.write_text('[server]\nport = 1\nhost = "0.0.0.0"\n[scheduling]\npreemption = false\n')
    found = load(file, {"PADDLEFLOW_SERVER_PORT": "2", "PADDLEFLOW_SCHEDULING_ELASTIC": "off"})
    assert (found.server.port, found.server.host) == (2, "0.0.0.0")
    assert (found.scheduling.preemption, found.scheduling.elastic) == (False, False)


def test_all_wrong_ones_are_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "paddleflow.toml"
    file.write_text("[server]\nprt = 1\n[lcal]\ncpus = 3\n")
    with pytest.raises(Invalid) as refused:
        load(file, {"PADDLEFLOW_ACCESS_TOKEN_HOURS": "many"})
    assert [(str(fault), fault.hint) for fault in refused.value.details] == [
        ("server.prt: is not a known setting", "did you mean port?"),
        ("PADDLEFLOW_ACCESS_TOKEN_HOURS: must be of type int, found 'many'", ""),
        ("lcal: is not a known section", "did you mean local?"),
    ]


def test_variables_that_are_almost_settings_are_found() -> None:
    fine = {"PADDLEFLOW_LOCAL_CPUS": "3", "PADDLEFLOW_SERVER": "http://x", "PADDLEFLOW_SERVER_CONFIG": "x", "PATH": "y"}
    assert unknown_variables(fine) == []
    (stray,) = unknown_variables({**fine, "PADDLEFLOW_LOCAL_CPU": "3"})
    assert (stray.where, stray.hint) == ("PADDLEFLOW_LOCAL_CPU", "did you mean PADDLEFLOW_LOCAL_CPUS?")
