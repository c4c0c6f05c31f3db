"""What mount(8) gives becomes the words of `fs mount`."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddleflow.cli.fstab import translate
from paddleflow.errors import Forbidden, Invalid, NotFound


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["s3://b/p", "/mnt"], ["--url", "s3://b/p", "/mnt"]),
        (["team", "/mnt", "-o", "rw"], ["team", "/mnt"]),
        (["file:///d", "/mnt", "-sn", "-o", "ro,noexec,nofail,_netdev,x-systemd.automount"], ["--url", "file:///d", "--read-only", "--noexec", "/mnt"]),
        (["s3://b", "/m", "-o", "cache_dir=/c,allow_other,ttl=5"], ["--url", "s3://b", "--cache-dir", "/c", "--allow-other", "--ttl", "5", "/m"]),
        (["s3://b", "/m", "-f"], []),
    ],
)  # fmt: skip
def test_words(words: list[str], wanted: list[str]) -> None:
    assert translate(words) == wanted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["s3://b"], "found 1"),
        (["s3://b", "/m", "-o", "chache-dir=/c"], "'chache-dir' is not a mount option"),
        (["s3://b", "/m", "-o", "writeback=yes"], "takes no value"),
        (["s3://b", "/m", "-o", "cache-size"], "needs a value"),
        (["s3://b", "/m", "-x"], "-x is not an option"),
        (["s3://b", "/m", "-o", "rw,remount"], "cannot be changed while it is mounted"),
    ],
)
def test_refusals(words: list[str], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        translate(words)


def test_keys_come_from_a_file_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    words = ["s3://b", "/m", "-o", f"credentials={file}"]
    with pytest.raises(NotFound):
        translate(words)
    file.write_text("# keys\naccess-key=A\nsecret-key=B\n")
    file.chmod(0o644)
    with pytest.raises(Forbidden):
        translate(words)
    file.chmod(0o600)
    assert translate(words) == ["--url", "s3://b", "--access-key", "A", "--secret-key", "B", "/m"]
