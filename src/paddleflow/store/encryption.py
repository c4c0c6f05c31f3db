"""Encryption at rest: what is secret in a row is AES-256-GCM with a key that is not in the database.

* A `Keyring` holds the keys of the key file (or of the key command), one line each: its id, a blank, 32 bytes in base64. The
  last one encrypts, all of them decrypt. A token says which key it needs.
* `context` is authenticated: a token that was copied into another row does not decrypt there.
* The database has the id and a proof of each key that its rows may need, so a missing or wrong key is noticed when a server
  starts (`open_keyring`), and not when a job fails. A server without the keys starts only while nothing is encrypted; its
  keyring is then closed and says why.
* `rotate` gives every row a new key. At each moment the key file holds every key that a row needs: after `kill -9` at any
  line the same command goes on.

Whoever keeps tokens in a table describes it by an `EncryptedColumn`, and `server/encrypted_columns.py` names it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paddleflow.base.ids import new_short_id
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Invalid, Unavailable
from paddleflow.settings import EncryptionSettings
from paddleflow.store.database import Database, Tx
from paddleflow.store.private_file import write_private
from paddleflow.store.statements import Statement, load

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SQL = load("paddleflow.store", "encryption.sql")
FILE = "encryption.keys"  #: in the data folder
COMMAND_SECONDS = 10.0  #: that a key command may take
MOST_TEXT = 64 * 2**10  #: bytes of a key file
PAGE = 200  #: rows that one transaction of a rotation changes
_KEY_BYTES, _NONCE_BYTES = 32, 12
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_PROVEN = b"paddleflow encryption key"

log = Log("encryption")


@dataclass(frozen=True, slots=True)
class Key:
    """One key. Its secret is not shown by repr."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Key({self.id})"

    @property
    def proof(self) -> str:
        return hmac.new(self.secret, _PROVEN, hashlib.sha256).hexdigest()

    @property
    def line(self) -> str:
        return f"{self.id} {base64.b64encode(self.secret).decode()}\n"

    @classmethod
    def random(cls) -> Key:
        return cls(new_short_id("key"), os.urandom(_KEY_BYTES))


class Keyring:
    """The keys of this server. Without any it is closed: both calls raise `Unavailable` with the reason."""

    def __init__(self, keys: Sequence[Key], *, closed: str = "", hint: str = "") -> None:
        self._keys = {key.id: key for key in keys}
        self._current = keys[-1] if keys else None
        self._closed, self._hint = closed, hint

    @classmethod
    def random(cls) -> Keyring:
        """Of a key that nobody else has and that ends with this process: for tests."""
        return cls([Key.random()])

    def encrypt(self, text: str, context: str) -> str:
        """A token: text of letters, digits and ``. - _ =``."""
        if self._current is None:
            raise Unavailable(self._closed, hint=self._hint)
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + _cipher(self._current).encrypt(nonce, text.encode("utf-8", "surrogatepass"), context.encode())
        return f"v1.{self._current.id}.{base64.urlsafe_b64encode(sealed).decode()}"

    def decrypt(self, token: str, context: str) -> str:
        """The text again; `Unavailable` when this server lacks the key, or the token is damaged or of another context."""
        if self._current is None:
            raise Unavailable(self._closed, hint=self._hint)
        version, _, rest = token.partition(".")
        key_id, _, body = rest.partition(".")
        if version != "v1":
            raise Unavailable(f"the secret of {context} has a form that this version does not know: {version[:20]!r}")
        key = self._keys.get(key_id)
        if key is None:
            raise Unavailable(
                f"the secret of {context} is encrypted with key {key_id[:40]}, which this server does not hold",
                hint="add its line to the key file and start the server again",
            )
        from cryptography.exceptions import InvalidTag

        try:
            sealed = base64.urlsafe_b64decode(body)
            nonce, cipher_text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            return _cipher(key).decrypt(nonce, cipher_text, context.encode()).decode("utf-8", "surrogatepass")
        except (InvalidTag, ValueError) as error:
            raise Unavailable(f"the secret of {context} is damaged, or was copied from elsewhere") from error


def _cipher(key: Key) -> AESGCM:
    """The library is imported late: 30 ms at the start of each server, for the few that keep secrets."""
    from cryptography.hazmat.primitives.ciphers import aead

    return aead.AESGCM(key.secret)


def key_of(token: str) -> str:
    """The id of the key that a token needs."""
    return token.split(".", 2)[1] if token.count(".") >= 2 else ""


# ---- where keys come from -----------------------------------------------------------------------------------------------------


def key_file(settings: EncryptionSettings, data: Path) -> Path:
    return Path(settings.key_file).expanduser() if settings.key_file else data / FILE


def read_keys(settings: EncryptionSettings, data: Path) -> list[Key]:
    """All keys, oldest first; none when the key file is not there. `Invalid` says what is wrong with it. Blocks."""
    if settings.key_command:
        return parse_keys(_command_output(settings.key_command), "encryption.key_command")
    path = key_file(settings, data)
    try:
        if path.stat().st_mode & 0o007:
            raise Invalid(f"key file {path} is open to everybody on this machine", hint=f"chmod 600 {path}")
        with path.open("rb") as file:
            text = file.read(MOST_TEXT + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unavailable(f"key file {path}: {error.strerror}") from error
    return parse_keys(text, f"key file {path}")


def parse_keys(text: bytes, source: str) -> list[Key]:
    """The keys of a key file's text. Pure."""
    hint = "restore it from a backup; a line is a key's id, a blank, and 32 bytes in base64"
    if len(text) > MOST_TEXT:
        raise Invalid(f"{source} has more than {MOST_TEXT} bytes", hint=hint)
    found: dict[str, Key] = {}
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, encoded = line.strip().partition(" ")
        try:
            secret = base64.b64decode(encoded.strip(), validate=True)
        except binascii.Error:
            secret = b""
        if not _ID.fullmatch(name) or len(secret) != _KEY_BYTES or name in found:
            raise Invalid(f"{source}, line {number}: is not a key, or has an id that is already used", hint=hint)
        found[name] = Key(name, secret)
    if not found:
        raise Invalid(f"{source} holds no key", hint=hint)
    return list(found.values())


def _command_output(command: str) -> bytes:
    what = "encryption.key_command"
    try:
        done = subprocess.run(shlex.split(command), capture_output=True, timeout=COMMAND_SECONDS, check=False)
    except (OSError, ValueError) as error:
        raise Unavailable(f"{what} cannot be run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{what} did not end within {COMMAND_SECONDS:g} s") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[-200:]
        raise Unavailable(f"{what} ended with {done.returncode}: {said}")
    return done.stdout


# ---- which keys a database needs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EncryptedColumn:
    """A column that holds tokens.

    `page` selects ``id`` and ``token`` of the rows that hold one, with an id beyond ``:after``, in order of id, at most
    ``:limit``. `replace` sets the token of the row ``:id`` to ``:token`` where it still is ``:old``.
    """

    what: str  #: for people, such as "storages"
    context: Callable[[str], str]  #: of a row's id
    page: Statement
    replace: Statement


async def open_keyring(
    database: Database, settings: EncryptionSettings, data: Path, columns: Sequence[EncryptedColumn], now: float
) -> Keyring:
    """The keyring of a server that starts; at the first start the key file is made.

    `Unavailable` or `Invalid` when values are encrypted that this server could not read.
    """
    keys = await asyncio.to_thread(read_keys, settings, data)
    made = not keys
    path = key_file(settings, data)
    if made:
        if reason := await database.read(_encrypted_without, keys, columns):
            raise Unavailable(
                f"key file {path} is missing, and the database has {reason}", hint=_restore(settings, path)
            )
        keys = [Key.random()]
        await asyncio.to_thread(_write_keys, path, keys)
    alone = database.dialect == "sqlite"
    try:
        registered = await database.write(_register, keys, columns, alone, now)
    except BaseException:
        if made:
            path.unlink(missing_ok=True)
        raise
    if registered:
        return Keyring(keys)
    if made:
        path.unlink(missing_ok=True)
    reason = f"the keys in {'encryption.key_command' if settings.key_command else path} are not those of this database"
    log.warning("secrets cannot be kept by this server", reason=reason, hint=_restore(settings, path))
    return Keyring([], closed=f"secrets cannot be kept by this server: {reason}", hint=_restore(settings, path))


def _restore(settings: EncryptionSettings, path: Path) -> str:
    if settings.key_command:
        return "let encryption.key_command print the keys of the other servers"
    return f"copy the key file of another server on this database, or a backup of it, to {path}"


def _write_keys(path: Path, keys: Sequence[Key]) -> None:
    note = "# Keys of encrypted values in PaddleFlow's database; the last one encrypts. Keep a backup apart from the database.\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, note + "".join(key.line for key in keys), durable=True)
    except OSError as error:
        raise Unavailable(f"key file {path}: {error.strerror}") from error


def _missing(tx: Tx, keys: Sequence[Key]) -> list[str]:
    """Registered keys that are not among these."""
    held = {key.id: key.proof for key in keys}
    rows = tx.all(SQL["registered_keys"])
    return [row["id"] for row in rows if held.get(row["id"]) != row["proof"]]


def _encrypted_without(tx: Tx, keys: Sequence[Key], columns: Sequence[EncryptedColumn]) -> str:
    """What is encrypted with keys that are missing here, in words; empty: nothing."""
    missing = _missing(tx, keys)
    if missing:
        for column in columns:
            if tx.all(column.page, after="", limit=1):
                return f"encrypted {column.what} that need key {', '.join(missing[:5])}"
    return ""


def _register(tx: Tx, keys: Sequence[Key], columns: Sequence[EncryptedColumn], alone: bool, now: float) -> bool:
    """Whether these keys may be used with this database. `Unavailable` when values need others."""
    if reason := _encrypted_without(tx, keys, columns):
        raise Unavailable(
            f"this server's keys are not those of its database, which has {reason}",
            hint="copy the key file of another server on this database, or a backup of it",
        )
    missing = _missing(tx, keys)
    if missing and not alone:
        return False
    for name in missing:
        tx.run(SQL["forget_key"], id=name)
    for key in keys:
        tx.run(SQL["register_key"], id=key.id, proof=key.proof, now=now)
    return True


# ---- rotation -----------------------------------------------------------------------------------------------------------------


async def rotate(
    database: Database,
    settings: EncryptionSettings,
    data: Path,
    columns: Sequence[EncryptedColumn],
    now: float,
    page: int = PAGE,
) -> tuple[Key, int]:
    """Encrypt everything anew; the new key, and how many rows were changed. No server may run on the database meanwhile."""
    keys = await asyncio.to_thread(read_keys, settings, data)
    alone, path = database.dialect == "sqlite", key_file(settings, data)
    if not settings.key_command:
        if reason := await database.read(_encrypted_without, keys, columns):
            raise Unavailable(f"the keys in {path} do not suffice: there are {reason}", hint=_restore(settings, path))
        keys.append(Key.random())
        await asyncio.to_thread(_write_keys, path, keys)  # with all old ones, before a row needs the new one
    elif len(keys) < 2:
        raise Conflict(
            "encryption.key_command prints one key only",
            hint="let the key service make a new one and print it as the last line",
        )
    if not await database.write(_register, keys, columns, alone, now):
        raise Unavailable("these keys are not those of the database", hint=_restore(settings, path))
    count = 0
    for column in columns:
        count += await _rotate_column(database, Keyring(keys), keys[-1], column, page)
    await database.write(_forget_old, keys, columns)
    if not settings.key_command:
        await asyncio.to_thread(_write_keys, path, keys[-1:])
    return keys[-1], count


async def _rotate_column(database: Database, keyring: Keyring, new: Key, column: EncryptedColumn, page: int) -> int:
    count, after = 0, ""
    while True:
        changed, after = await database.write(_rotate_page, keyring, new, column, after, page)
        count += changed
        if not after:
            return count


def _rotate_page(tx: Tx, keyring: Keyring, new: Key, column: EncryptedColumn, after: str, page: int) -> tuple[int, str]:
    rows = tx.all(column.page, after=after, limit=page)
    changed = 0
    for row in rows:
        if key_of(row["token"]) != new.id:
            context = column.context(row["id"])
            token = keyring.encrypt(keyring.decrypt(row["token"], context), context)
            changed += tx.run(column.replace, id=row["id"], old=row["token"], token=token)
    return changed, str(rows[-1]["id"]) if rows else ""


def _forget_old(tx: Tx, keys: Sequence[Key], columns: Sequence[EncryptedColumn]) -> None:
    """In the transaction that lets the old keys go, no row needs them."""
    for column in columns:
        after = ""
        while rows := tx.all(column.page, after=after, limit=10 * PAGE):
            after = str(rows[-1]["id"])
            if left := [row["id"] for row in rows if key_of(row["token"]) != keys[-1].id]:
                raise Conflict(
                    f"{column.what} {', '.join(map(str, left[:5]))} changed meanwhile", hint="run the command again"
                )
    for key in keys[:-1]:
        tx.run(SQL["forget_key"], id=key.id)
