"""Encryption of what is kept: the text of a question, its answer and its vector, with AES-256-GCM (NIST SP 800-38D).

The three are sealed together, and bound to the entry's key, tenant, partition and time: a record that was moved to
another one does not open. The fields by which entries are found stay in clear text: a digest of the question, the
tenant's name, times, sizes.
"""

from __future__ import annotations

import logging
import os
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, NamedTuple

from prometheus_client import Counter
from pydantic import AfterValidator, SecretStr

from services.cache.entries import Entry

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALED = b"\xff\xfesealed 1"  # in the place of the question's text: it is no UTF-8
_KEY_BYTES, _NONCE_BYTES, _ID_BYTES = 32, 12, 4
_UNREADABLE = Counter("hedgerow_cache_unreadable", "Entries that could not be decrypted, or are not encrypted.")
_log = logging.getLogger(__name__)


class Texts(NamedTuple):
    """The texts of an entry that are sealed; where they are, `asked` is `SEALED` and `embedding` empty."""

    asked: bytes
    answer: bytes
    embedding: bytes


class UnreadableEntry(Exception):
    """No key decrypts the entry, or the entry was changed."""


def keys(text: str) -> list[bytes]:
    """The keys in a setting. Raises ValueError, whose text has no part of them."""
    found = []
    for number, each in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        try:
            key = b64decode(each, validate=True)
        except ValueError:
            raise ValueError(f"key {number}: {_KEY_BYTES} bytes in base64, and it is no base64") from None
        if len(key) != _KEY_BYTES:
            raise ValueError(f"key {number}: {_KEY_BYTES} bytes in base64, got {len(key)} bytes")
        found.append(key)
    return found


def _usable(setting: SecretStr) -> SecretStr:
    keys(setting.get_secret_value())
    return setting


Keys = Annotated[SecretStr, AfterValidator(_usable)]


class Encryption:
    """The first key seals, each opens. Without any, all is in clear text. `unreadable`: entries so far that did not
    open."""

    def __init__(self, keys: Sequence[bytes] = ()):
        """Each of 32 bytes."""
        self.unreadable = 0
        self._ciphers = dict(map(_cipher, keys))

    @property
    def on(self) -> bool:
        """Whether anything is sealed."""
        return bool(self._ciphers)

    def seal(self, entry: Entry, embedding: bytes) -> Texts:
        """The columns of an entry that may be kept."""
        if not self._ciphers:
            return Texts(entry.asked, entry.answer, embedding)
        name, cipher = next(iter(self._ciphers.items()))
        nonce = os.urandom(_NONCE_BYTES)
        plain = _joined(entry.asked, entry.answer, embedding)
        return Texts(SEALED, name + nonce + cipher.encrypt(nonce, plain, _owner(entry)), b"")

    def open(self, entry: Entry, embedding: bytes) -> tuple[Entry, bytes]:
        """An entry whose texts are as they were kept, as it was, and its embedding. Raises `UnreadableEntry`."""
        try:
            return self._open(entry, embedding)
        except UnreadableEntry as error:
            _UNREADABLE.inc()
            self.unreadable += 1
            if self.unreadable == 1:
                _log.error("an entry cannot be read, and is a miss, as others may be: %s", error)
            raise

    def _open(self, entry: Entry, embedding: bytes) -> tuple[Entry, bytes]:
        if entry.asked != SEALED:
            if self._ciphers:
                raise UnreadableEntry("it is in clear text, and there is an encryption_key")
            return entry, embedding
        if not self._ciphers:
            raise UnreadableEntry("it is encrypted, and there is no encryption_key")
        from cryptography.exceptions import InvalidTag

        name, rest = entry.answer[:_ID_BYTES], entry.answer[_ID_BYTES:]
        if (cipher := self._ciphers.get(name)) is None:
            raise UnreadableEntry("it is encrypted with none of the keys of encryption_key")
        try:
            opened = Texts(*_parts(cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _owner(entry))))
        except (InvalidTag, ValueError):
            raise UnreadableEntry("its authentication tag does not match") from None
        return replace(entry, asked=opened.asked, answer=opened.answer), opened.embedding


def _cipher(key: bytes) -> tuple[bytes, AESGCM]:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return sha256(b"hedgerow cache key" + key).digest()[:_ID_BYTES], AESGCM(key)


def _owner(entry: Entry) -> bytes:
    return _joined(entry.key.encode(), entry.tenant.encode(), entry.partition, str(entry.expires_at_ms).encode())


def _joined(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def _parts(joined: bytes) -> list[bytes]:
    parts = []
    while joined:
        end = 4 + int.from_bytes(joined[:4])
        parts.append(joined[4:end])
        joined = joined[end:]
    return parts
