"""SFTP servers that lie: any user may name one, so what they say is bounded and checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_address

import pytest

from paddleflow.errors import Forbidden, Invalid, Unavailable
from paddleflow.objects.sftp import SftpStore
from paddleflow.objects.urls import open_store
from paddleflow.storage import files
from tests.lying_sftp import lying_sftp


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with lying_sftp() as port:
        yield port


def store(port: int, lie: str) -> SftpStore:
    properties = {"user": "ada", "password": "x", "insecureSkipVerify": "true"}
    opened = open_store(f"sftp://127.0.0.1:{port}/{lie}", properties)
    assert isinstance(opened, SftpStore)
    return opened


def test_a_name_that_leads_to_a_metadata_service(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddleflow.objects.addresses.METADATA", frozenset([ip_address("127.0.0.1")]))
    with closing(store(port, "odd")) as odd, pytest.raises(Forbidden, match="never connected to"):
        odd.stat("")


def test_names_that_lead_elsewhere_are_none(port: int) -> None:
    with closing(store(port, "odd")) as odd:
        assert {entry.key for entry in odd.list_entries()} == {"\udcff\udcfe", "a\nb", "plain"}


def test_a_size_that_no_file_has(port: int) -> None:
    with closing(store(port, "huge")) as huge:
        with pytest.raises(Unavailable, match="18446744073709551615"):
            huge.stat("plain")
        with pytest.raises(Unavailable, match="no file has"):
            list(huge.list_entries())


@pytest.mark.parametrize("after", ["", "zzz"])
def test_a_listing_without_end_can_be_given_up_and_comes_to_one(port: int, after: str) -> None:
    """Whether its names count for the page or not."""
    with closing(store(port, "same")) as same:
        work = files.list_page(same, "", after, 10, most_listed=5_000)
        assert next(work) == 100
        with pytest.raises(Invalid, match="5,000 entries"):
            for _ in work:
                pass


def test_folders_without_end_come_to_one(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddleflow.objects.sftp.MOST_FOLDERS", 3_000)
    with closing(store(port, "folders")) as folders, pytest.raises(Unavailable, match="3,000 folders"):
        list(folders.list_entries(recursive=True))
