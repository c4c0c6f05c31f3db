"""The keyring: tokens, key files that are lost, open or damaged, and rotation that is killed anywhere."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.errors import Conflict, Invalid, PaddleFlowError, Unavailable
from paddleflow.settings import EncryptionSettings
from paddleflow.storage import secrets
from paddleflow.store import encryption
from paddleflow.store.database import Database, Tx
from paddleflow.store.encryption import FILE, Key, Keyring, key_of, open_keyring, parse_keys, read_keys, rotate
from paddleflow.store.statements import compose

PLAIN = EncryptionSettings()
COLUMNS = secrets.ENCRYPTED
INSERT = compose(
    "insert into filesystems (id, name, user_name, fs_type, server_address, sub_path, properties, independent, confined, "
    "created_at, updated_at, secrets) values (:id, :id, 'root', 's3', '', '', '{}', 0, 0, 0, 0, :token)"
)


def add_storages(tx: Tx, keyring: Keyring, count: int) -> None:
    for number in range(count):
        token = secrets.encrypt(keyring, f"storage:fs-{number:04}", {"secretKey": f"secret-{number}"})
        tx.run(INSERT, id=f"fs-{number:04}", token=token)


def stored(tx: Tx, keyring: Keyring) -> dict[str, str]:
    rows = tx.all(secrets.SQL["encrypted_page"], after="", limit=10_000)
    return {row["id"]: secrets.decrypt(keyring, f"storage:{row['id']}", row["token"])["secretKey"] for row in rows}


def keys_needed(tx: Tx) -> set[str]:
    return {key_of(row["token"]) for row in tx.all(secrets.SQL["encrypted_page"], after="", limit=10_000)}


@given(st.text(), st.text(st.characters(codec="utf-8")))
def test_a_token_gives_its_text_again_in_its_context_only(text: str, context: str) -> None:
    keyring = Keyring.random()
    token = keyring.encrypt(text, context)
    assert keyring.decrypt(token, context) == text
    assert keyring.encrypt(text, context) != token, "a nonce was used twice"
    with pytest.raises(Unavailable, match="damaged, or was copied"):
        keyring.decrypt(token, context + "x")


def test_a_damaged_or_foreign_token_is_refused_in_words() -> None:
    keyring = Keyring.random()
    token = keyring.encrypt("secret", "storage:a")
    with pytest.raises(Unavailable, match="which this server does not hold"):
        Keyring.random().decrypt(token, "storage:a")
    with pytest.raises(Unavailable, match="a form that this version does not know"):
        keyring.decrypt("plain text", "storage:a")
    with pytest.raises(Unavailable, match="damaged"):
        keyring.decrypt(token[:-8] + "AAAAAAA=", "storage:a")
    with pytest.raises(Unavailable, match="damaged"):
        keyring.decrypt(f"v1.{key_of(token)}.", "storage:a")


async def test_the_first_start_makes_a_private_key_file_and_later_ones_use_it(
    database: Database, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    token = (await open_keyring(database, PLAIN, data, COLUMNS, 1.0)).encrypt("x", "c")
    assert (data / FILE).stat().st_mode & 0o777 == 0o600
    assert (await open_keyring(database, PLAIN, data, COLUMNS, 2.0)).decrypt(token, "c") == "x"


async def test_a_lost_key_is_noticed_at_the_start_while_something_needs_it(database: Database, tmp_path: Path) -> None:
    keyring = await open_keyring(database, PLAIN, tmp_path, COLUMNS, 1.0)
    await database.write(add_storages, keyring, 1)
    kept = (tmp_path / FILE).read_text()
    (tmp_path / FILE).unlink()
    with pytest.raises(Unavailable, match=r"is missing, and the database has encrypted storages that need key key-"):
        await open_keyring(database, PLAIN, tmp_path, COLUMNS, 2.0)
    assert not (tmp_path / FILE).exists(), "a key of no use was left"
    (tmp_path / FILE).write_text(Key.random().line)
    (tmp_path / FILE).chmod(0o600)
    with pytest.raises(Unavailable, match="keys are not those of its database"):
        await open_keyring(database, PLAIN, tmp_path, COLUMNS, 2.0)
    same_id = kept.splitlines()[-1].split()[0]
    (tmp_path / FILE).write_text(Key(same_id, bytes(32)).line)
    with pytest.raises(Unavailable, match="keys are not those of its database"):
        await open_keyring(database, PLAIN, tmp_path, COLUMNS, 2.0)
    (tmp_path / FILE).write_text(kept)
    assert await database.read(stored, await open_keyring(database, PLAIN, tmp_path, COLUMNS, 3.0)) == {
        "fs-0000": "secret-0"
    }


async def test_a_server_without_the_keys_starts_while_nothing_is_encrypted(database: Database, tmp_path: Path) -> None:
    await open_keyring(database, PLAIN, tmp_path / "a", COLUMNS, 1.0)
    second = await open_keyring(database, PLAIN, tmp_path / "b", COLUMNS, 2.0)
    if database.dialect == "sqlite":  # nobody else can have the old key
        assert second.decrypt(second.encrypt("x", "c"), "c") == "x"
    else:
        assert not (tmp_path / "b" / FILE).exists()
        with pytest.raises(Unavailable, match="secrets cannot be kept by this server"):
            second.encrypt("x", "c")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "holds no key"),
        (b"\0\xff\xfe" * 100, "line 1: is not a key"),
        (b"key-1 c2hvcnQ=\n", "line 1: is not a key"),
        (Key("key-1", bytes(32)).line.encode() * 2, "line 2: is not a key, or has an id that is already used"),
        (b"x" * (encryption.MOST_TEXT + 1), "has more than"),
    ],
)
def test_a_damaged_key_file_is_refused_with_its_line(text: bytes, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        parse_keys(text, "key file /keys")


def test_a_key_file_that_everybody_reads_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(Key.random().line)
    (tmp_path / FILE).chmod(0o644)
    with pytest.raises(Invalid, match="open to everybody"):
        read_keys(PLAIN, tmp_path)


async def test_keys_may_come_from_a_command(database: Database, tmp_path: Path) -> None:
    printed = tmp_path / "service"
    printed.write_text(Key("key-a", bytes(32)).line)
    settings = replace(PLAIN, key_command=f"cat {shlex.quote(str(printed))}")
    keyring = await open_keyring(database, settings, tmp_path, COLUMNS, 1.0)
    await database.write(add_storages, keyring, 3)
    assert not (tmp_path / FILE).exists()
    with pytest.raises(Conflict, match="prints one key only"):
        await rotate(database, settings, tmp_path, COLUMNS, 2.0)
    printed.write_text(printed.read_text() + Key("key-b", bytes(31) + b"\1").line)
    key, count = await rotate(database, settings, tmp_path, COLUMNS, 2.0)
    assert (key.id, count) == ("key-b", 3)
    printed.write_text(key.line)
    assert len(await database.read(stored, await open_keyring(database, settings, tmp_path, COLUMNS, 3.0))) == 3


@pytest.mark.parametrize("command", ["false", "/no/such/program", "'"])
def test_a_key_command_that_fails_is_said(command: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"encryption\.key_command"):
        read_keys(replace(PLAIN, key_command=command), tmp_path)


class Killed(BaseException):
    """Stands for the end of the process."""


class Dying:
    """A database whose process ends at the n-th thing that it writes."""

    def __init__(self, database: Database, limit: int) -> None:
        self.dialect, self.read = database.dialect, database.read
        self._database, self._left = database, limit

    def step(self) -> None:
        self._left -= 1
        if not self._left:
            raise Killed

    async def write(self, *args: Any, **kwargs: Any) -> Any:
        self.step()
        return await self._database.write(*args, **kwargs)


async def test_a_rotation_that_is_killed_anywhere_goes_on_with_the_same_command(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = await open_keyring(database, PLAIN, tmp_path, COLUMNS, 1.0)
    await database.write(add_storages, keyring, 12)
    secret = await database.read(stored, keyring)
    write_keys = encryption._write_keys
    for limit in range(1, 40):
        dying = Dying(database, limit)

        def write_keys_or_die(*args: Any, dying: Dying = dying) -> None:
            dying.step()
            write_keys(*args)

        with monkeypatch.context() as patch:
            patch.setattr(encryption, "_write_keys", write_keys_or_die)
            try:
                await rotate(cast(Database, dying), PLAIN, tmp_path, COLUMNS, 2.0, page=5)
            except Killed:
                ended = False
            else:
                ended = True
        after = await open_keyring(database, PLAIN, tmp_path, COLUMNS, 3.0)
        assert await database.read(stored, after) == secret
        if ended:
            break
    else:
        pytest.fail("the rotation never came to its end")
    assert limit > 6, "too few places to be killed at"
    [left] = read_keys(PLAIN, tmp_path)
    assert await database.read(keys_needed) == {left.id}


async def test_a_rotation_without_the_old_key_changes_nothing(database: Database, tmp_path: Path) -> None:
    keyring = await open_keyring(database, PLAIN, tmp_path, COLUMNS, 1.0)
    await database.write(add_storages, keyring, 2)
    (tmp_path / FILE).unlink()
    with pytest.raises(PaddleFlowError, match="do not suffice"):
        await rotate(database, PLAIN, tmp_path, COLUMNS, 2.0)
    assert not (tmp_path / FILE).exists()
    assert len(await database.read(stored, keyring)) == 2
