"""The container beside a job's: inputs are there before, outputs are stored after. Mounts are tried in `tests/cluster`."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event, Thread

import pytest

from paddleflow.errors import NotFound, PaddleFlowError
from paddleflow.fs import sidecar
from tests.patience import eventually


def document(folder: Path, url: str = "") -> sidecar.Document:
    return sidecar.read_document(text_of(folder, url))


def text_of(folder: Path, url: str = "") -> str:
    for name in ("store", "home", "seen"):
        (folder / name).mkdir(exist_ok=True)
    storage = {
        "storage": "fs-1",
        "folder": str(folder / "seen"),
        "url": url or f"file://{folder}/store",
        "properties": {},
        "subPath": "team",
        "readOnly": False,
        "inputs": ["in", "missing"],
        "outputs": ["out/model"],
    }
    return json.dumps(
        {"way": "copy", "home": str(folder / "home"), "ready": str(folder / "ready"), "storages": [storage]}
    )


@pytest.mark.parametrize("count", [1, 3])
def test_all_storages_of_a_pod_share_one_cache(tmp_path: Path, count: int) -> None:
    asked = document(tmp_path)
    several = sidecar.Document("mount", asked.home, asked.ready, [asked.storages[0]] * count)
    sizes = [sidecar.mount_options(several, each).cache_size for each in several.storages]
    assert 4 * 2**30 - count < sum(sizes) <= 4 * 2**30


def test_inputs_are_fetched_and_outputs_stored_when_the_job_has_ended(tmp_path: Path) -> None:
    asked, ended = document(tmp_path), Event()
    (tmp_path / "store" / "team" / "in").mkdir(parents=True)
    (tmp_path / "store" / "team" / "in" / "part").write_text("data")
    work = Thread(target=sidecar.run, args=(asked, ended))
    work.start()
    eventually((tmp_path / "ready").exists, "the job may start")
    copy = tmp_path / "seen" / "in" / "part"
    assert (copy.read_text(), copy.stat().st_mode & 0o777) == ("data", 0o666)
    (tmp_path / "seen" / "out" / "model").write_text("weights")
    assert not (tmp_path / "store" / "team" / "out").exists()
    ended.set()
    work.join()
    assert (tmp_path / "store" / "team" / "out" / "model").read_text() == "weights"


def test_a_second_life_of_the_container_leaves_the_job_s_files_alone(tmp_path: Path) -> None:
    asked = document(tmp_path)
    (tmp_path / "store" / "team").mkdir(parents=True)
    (tmp_path / "store" / "team" / "in").write_text("data")
    sidecar.Copies(asked).fetch()
    (tmp_path / "seen" / "in").write_text("changed")
    sidecar.Copies(asked).fetch()
    assert (tmp_path / "seen" / "in").read_text() == "changed"


def test_what_is_wrong_with_a_storage_is_said(tmp_path: Path) -> None:
    with pytest.raises(PaddleFlowError, match="input artifacts cannot be fetched") as caught:
        sidecar.run(document(tmp_path, f"file://{tmp_path}/nowhere"), Event())
    assert isinstance(caught.value, NotFound)


def test_after_a_final_end_the_first_cause_is_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = tmp_path / "document"
    asked.write_text(text_of(tmp_path, f"file://{tmp_path}/nowhere"))
    assert sidecar.main([str(asked)]) == sidecar.FINAL
    first = capsys.readouterr().err
    assert "input artifacts cannot be fetched" in first
    asked.write_text(text_of(tmp_path, f"file://{tmp_path}/elsewhere"))  # what a second life finds is another thing
    assert sidecar.main([str(asked)]) == sidecar.FINAL
    assert capsys.readouterr().err == first
