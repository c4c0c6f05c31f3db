"""Which urls and folders a storage may name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.errors import Forbidden, Invalid
from paddleflow.spec.faults import Faults
from paddleflow.storage.model import Place
from paddleflow.storage.places import area, check_folder, make_folder, parse_url, unmake
from paddleflow.storage.storages import place_of


def parsed(url: str) -> Place | None:
    faults = Faults("InvalidArguments")
    place = parse_url(url, {}, faults)
    faults.check()
    return place


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("local:///data/set1", "/data/set1"),
        ("local://data/set1", "/data/set1"),
        ("LOCAL:////data//set1/./", "/data/set1"),
        ("local:///data/ä b", "/data/ä b"),
        ("local:///data/..x", "/data/..x"),
    ],
)
def test_urls_of_folders(url: str, folder: str) -> None:
    assert parsed(url) == Place("local", "", folder)


@pytest.mark.parametrize(
    "url",
    [
        *("", "/data", "local:/data", "local://", "local:///", "local://./", "local:///a/../b", "local://.."),
        *("lokal:///a", "local:///a\0b", "local:///a\nb", "local:///" + "x" * 256, "://x"),
    ],
)
def test_bad_urls(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        parsed(url)
    assert caught.value.code == "InvalidFileSystemParamsURL"
    assert caught.value.hint


def test_urls_of_other_types() -> None:
    assert parsed("s3://bucket/some/path/") == Place("s3", "bucket", "/some/path", "s3://bucket/some/path/")
    faults = Faults("InvalidArguments")
    place = parse_url("S3://bucket", {"endpoint": "https://s3.example"}, faults)
    assert place == Place("s3", "https://s3.example", "/", "S3://bucket")
    for bad in ("s3://", "s3:///path", "s3://user:secret@bucket/x", "s3://bucket/a\nb"):
        with pytest.raises(Invalid) as caught:
            parsed(bad)
        assert caught.value.code == "InvalidFileSystemParamsURL"


@given(st.text(max_size=60))
def test_whatever_parses_is_absolute_and_below_the_root(rest: str) -> None:
    try:
        place = parsed("local://" + rest)
    except Invalid:
        return
    assert place is not None
    parts = Path(place.sub_path).parts
    assert parts[0] == "/"
    assert len(parts) > 1
    assert ".." not in parts
    assert parsed("local://" + place.sub_path) == place


def test_all_faults_of_a_document_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        place_of("a b", "local:///", {"x": "1"}, "alice")
    assert [fault.where for fault in caught.value.details] == ["name", "url", "properties"]
    assert caught.value.code == "InvalidArguments"


def test_user_and_name_are_short_enough_together() -> None:
    assert place_of("n" * 54, "local:///a", {}, "alice") == Place("local", "", "/a")
    with pytest.raises(Invalid, match="60 characters together") as caught:
        place_of("n" * 55, "local:///a", {}, "alice")
    assert caught.value.code == "InvalidFileSystemFsName"


def test_root_names_any_folder_that_exists(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert check_folder(str(elsewhere), data=data, user="root", confined=False) == elsewhere
    with pytest.raises(Invalid) as caught:
        check_folder(str(elsewhere / "no"), data=data, user="root", confined=False)
    assert (caught.value.code, caught.value.hint) == ("ConnectivityFailed", f"mkdir -p {elsewhere / 'no'}")
    (elsewhere / "file").write_text("")
    for path in ("file", "file/below"):
        with pytest.raises(Invalid) as caught:
            check_folder(str(elsewhere / path), data=data, user="root", confined=False)
        assert caught.value.code == "ConnectivityFailed"


def test_the_root_of_the_machine_is_refused_behind_a_link_too(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(Invalid, match="root of the machine"):
        check_folder(str(tmp_path / "link"), data=tmp_path, user="root", confined=False)


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(Invalid) as caught:
        check_folder(str(tmp_path / "one"), data=tmp_path, user="root", confined=False)
    assert caught.value.code == "ConnectivityFailed"


def test_others_stay_in_their_own_area(tmp_path: Path) -> None:
    own, other = area(tmp_path, "alice"), area(tmp_path, "bobby")
    assert check_folder(str(own / "set"), data=tmp_path, user="alice", confined=True) == own / "set"
    own.mkdir(parents=True)
    other.mkdir(parents=True)
    (own / "link").symlink_to(other)
    (own / "inside").symlink_to(own)
    assert check_folder(str(own / "inside"), data=tmp_path, user="alice", confined=True) == own
    for outside in (other, tmp_path, own / "link", own / "link" / "deep", Path("/etc"), own.parent / "alice2"):
        with pytest.raises(Forbidden) as caught:
            check_folder(str(outside), data=tmp_path, user="alice", confined=True)
        assert str(own) in caught.value.hint


def test_folders_are_made_and_taken_away_again(tmp_path: Path) -> None:
    made = make_folder(tmp_path / "a" / "b" / "c")
    assert [path.name for path in made] == ["c", "b", "a"]
    assert (tmp_path / "a" / "b" / "c").stat().st_mode & 0o777 == 0o700
    (tmp_path / "a" / "kept").write_text("")
    unmake(made)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "kept"]
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid) as caught:
        make_folder(tmp_path / "file" / "x")
    assert caught.value.code == "ConnectivityFailed"
