"""API keys of tenants: made, listed and revoked where the file has their SHA-256, which is all that it has of them but
when they expire.

The file is a mesh file, or one that the gateway follows itself (`HEDGEROW_GATEWAY_TENANTS_FILE`).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from hedgerow.tenants import A_NAME, is_name, read_moment
from launcher.meshfile.edit import CannotEdit, add, remove
from launcher.meshfile.expiry import written
from launcher.meshfile.fields import path_from, read_key
from launcher.meshfile.marks import read_marked
from launcher.meshfile.replacing import locked

PREFIX = "hr-"  # by which scanners for secrets find a key that was published
ID_DIGITS = 12  # of the SHA-256, which name a key
_FEWEST_DIGITS = 6
_LARGEST_BYTES = 1024 * 1024


class KeysError(ValueError):
    """A command on keys failed. `reason` is for programs."""

    def __init__(self, reason: str, message: str):
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True)
class Key:
    """One key of a tenant. `source` says where it is: `key_sha256` or `keys`, a digest in the file, `key_env`, a
    variable, or `key_file`. `sha256` is empty where the key cannot be read here. `expires`: None where it does not."""

    tenant: str
    sha256: str
    source: str
    name: str = ""  # of the variable or the file
    expires: datetime | None = None

    @property
    def id(self) -> str:
        return self.sha256[:ID_DIGITS]

    @property
    def is_digest(self) -> bool:
        """Whether the file has the digest itself, so that it can be taken out."""
        return self.source in ("key_sha256", "keys")

    def has_expired(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now


@dataclass(frozen=True)
class KeysFile:
    """A file with tenants. `at`: where they are in it; `field`: where each has its digests."""

    path: Path
    at: tuple[str, ...]
    field: str

    @classmethod
    def of_mesh(cls, path: Path) -> KeysFile:
        """The keys of a mesh file, or of the tenants' file that it names."""
        content = _content(path, _text(path))
        if named := content.get("tenants_file"):
            try:
                return cls.of_tenants(path_from(path.absolute().parent, str(named)))
            except ValueError as error:
                raise KeysError("FILE_UNUSABLE", f"{path}: tenants_file: {error}") from None
        return cls(path, ("tenants",), "key_sha256")

    @classmethod
    def of_tenants(cls, path: Path) -> KeysFile:
        """The keys of a tenants' file."""
        return cls(path, (), "keys")

    def keys(self) -> list[Key]:
        """All keys, in the file's order. Raises `KeysError`."""
        return [key for name, tenant in self._tenants().items() for key in self._keys(name, tenant)]

    def checked(self) -> list[Key]:
        """All keys, of tenants whose names the gateway takes. Raises `KeysError`."""
        for name in self.tenants():
            _refuse_name(name)
        return self.keys()

    def tenants(self) -> list[str]:
        return list(self._tenants())

    def create(self, tenant: str, *, new: bool = False, expires: datetime | None = None) -> tuple[str, Key]:
        """Makes a key for a tenant, which `new` adds where there is none of the name. Raises `KeysError`."""
        if new:
            _refuse_name(tenant)
        key = PREFIX + secrets.token_urlsafe(32)
        digest = digest_of(key)
        item = {"sha256": digest, "expires": written(expires)} if expires else digest

        def more(text: str) -> str:
            known = list(self._tenants(text))
            if tenant not in known and not new:
                raise KeysError("TENANT_UNKNOWN", f"{self.path} has no tenant {tenant}; {_near(tenant, known)}")
            return add(text, (*self.at, tenant, self.field), json.dumps(item))

        def said(tenants: dict[str, Any]) -> None:
            own = tenants.get(tenant) or {}
            tenants[tenant] = {**own, self.field: [item, *_many(own.get(self.field))]}

        self._change(more, said, make=new)
        return key, Key(tenant, digest, self.field, expires=expires)

    def revoke(self, wanted: str) -> Key:
        """Takes out the key whose SHA-256 begins with `wanted`. Raises `KeysError`."""
        key = self._find(wanted)

        def less(text: str) -> str:
            return remove(text, (*self.at, key.tenant, self.field), key.sha256)

        def said(tenants: dict[str, Any]) -> None:
            own = tenants[key.tenant]
            left = [item for item in _many(own.get(self.field)) if _in_full(item)["sha256"] != key.sha256]
            tenants[key.tenant] = {**own, self.field: left}

        self._change(less, said)
        return key

    def _find(self, wanted: str) -> Key:
        if len(wanted) < _FEWEST_DIGITS:
            message = f"at least {_FEWEST_DIGITS} digits of the key's id are needed, got {len(wanted)}"
            raise KeysError("KEY_UNKNOWN", message)
        keys = self.keys()
        found = [key for key in keys if key.sha256.startswith(wanted.lower())]
        if not found:
            raise KeysError("KEY_UNKNOWN", f'{self.path} has no key {wanted[:ID_DIGITS]}; see "hedgerow keys list"')
        if len({key.sha256 for key in found}) > 1:
            raise KeysError("KEY_AMBIGUOUS", f"{len(found)} keys begin with {wanted}: {', '.join(k.id for k in found)}")
        key = found[0]
        if not key.is_digest:
            raise KeysError(
                "KEY_ELSEWHERE", f"key {key.id} of {key.tenant} is in {key.source} {key.name}: take it out of the file"
            )
        self._refuse_last(key, [each for each in keys if each.sha256 != key.sha256])
        return key

    def _refuse_last(self, key: Key, others: list[Key]) -> None:
        """A valid key may go where its tenant has another valid one. An expired key may go where the file stays usable:
        a mesh file needs a key of each tenant, and a gateway on loopback that starts without any key is open to all."""
        now = datetime.now(UTC)
        own = [each for each in others if each.tenant == key.tenant]
        if key.has_expired(now):
            left = own if self.at else others
        else:
            left = [each for each in own if not each.has_expired(now)]
        if not left:
            only = f"the only one of {key.tenant}{' that has not expired' if own else ''}"
            raise KeysError(
                "LAST_KEY",
                f"key {key.id} is {only}, and a tenant needs one; make another first, with "
                f'"hedgerow keys create {key.tenant}", or take the tenant out of {self.path}',
            )

    def _keys(self, name: str, tenant: Any) -> Iterator[Key]:
        own = tenant if isinstance(tenant, dict) else {}
        for item in map(_in_full, _many(own.get(self.field))):
            yield Key(name, item["sha256"], self.field, expires=self._expiry(name, item.get("expires")))
        if self.field != "key_sha256":
            return
        for variable in _many(own.get("key_env")):
            yield Key(name, digest_of(os.environ.get(str(variable), "").strip()), "key_env", str(variable))
        if file := own.get("key_file"):
            try:
                key = read_key(path_from(self.path.absolute().parent, str(file)))
            except ValueError:
                key = ""
            yield Key(name, digest_of(key), "key_file", str(file))

    def _expiry(self, tenant: str, given: Any) -> datetime | None:
        try:
            return None if given is None else read_moment(given)
        except ValueError as error:
            raise KeysError("FILE_UNUSABLE", f"{self.path}: {tenant}.{self.field}: expires: {error}") from None

    def _tenants(self, text: str | None = None) -> Mapping[str, Any]:
        content = _content(self.path, _text(self.path) if text is None else text)
        return _inside(content, self.at)

    def _change(
        self, edit: Callable[[str], str], said: Callable[[dict[str, Any]], None], *, make: bool = False
    ) -> None:
        """Replaces the file by its edited text, which must say what it said but for the change."""
        try:
            with locked(self.path, make=make) as file:
                before = _decoded(self.path, file.read())
                wanted = _content(self.path, before)
                tenants = dict(_inside(wanted, self.at))
                try:
                    after = edit(before)
                except CannotEdit as error:
                    self._refuse(str(error))
                said(tenants)
                wanted = {**wanted, self.at[0]: tenants} if self.at else tenants
                if read_marked(after).content != wanted:
                    self._refuse("it repeats parts by anchors, or has a form that is not edited")
                file.replace(after.encode())
        except OSError as error:
            raise KeysError("FILE_UNUSABLE", f"{self.path} cannot be written: {error.strerror}") from None

    def _refuse(self, why: str) -> NoReturn:
        raise KeysError("FILE_UNUSABLE", f"{self.path} stays as it is: {why}. Edit `{self.field}` by hand")


def _text(path: Path) -> str:
    try:
        return _decoded(path, path.read_bytes())
    except OSError as error:
        raise KeysError("FILE_UNUSABLE", f"{path} cannot be read: {error.strerror}") from None


def _decoded(path: Path, content: bytes) -> str:
    if len(content) > _LARGEST_BYTES:
        raise KeysError("FILE_UNUSABLE", f"{path}: at most {_LARGEST_BYTES} bytes, got {len(content)}")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise KeysError("FILE_UNUSABLE", f"{path}: text in UTF-8 is needed") from None


def _content(path: Path, text: str) -> dict[str, Any]:
    marked = read_marked(text)
    if marked.problems:
        raise KeysError("FILE_UNUSABLE", marked.problems[0].formatted(str(path)))
    content = {} if marked.content is None else marked.content
    if not isinstance(content, dict):
        raise KeysError("FILE_UNUSABLE", f"{path}: keys and values are needed")
    return content


def _inside(content: Mapping[str, Any], at: tuple[str, ...]) -> Mapping[str, Any]:
    found = (content.get(at[0]) or {}) if at else content
    return found if isinstance(found, dict) else {}


def _many(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [] if given in (None, "") else [given]


def _in_full(item: Any) -> dict[str, Any]:
    """A key of the file, which is its digest alone, or an object with it."""
    own = item if isinstance(item, dict) else {"sha256": item}
    return {**own, "sha256": str(own.get("sha256", "")).lower()}


def digest_of(key: str) -> str:
    """The SHA-256 of a key; empty for none."""
    return sha256(key.encode()).hexdigest() if key else ""


def _near(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    there = f"there are {', '.join(known)}" if known else "it has none"
    return f"{f'did you mean {near[0]}?' if near else f'{there};'} --new adds it"


def _refuse_name(name: str) -> None:
    """Refuse a tenant's name that the gateway refuses: two spellings that look alike could be taken for one tenant."""
    if not is_name(name):
        raise KeysError("TENANT_UNUSABLE", f"a tenant's name has {A_NAME}, got {ascii(name)[:80]}")
