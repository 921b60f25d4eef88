"""The tenant of a call, which comes from its credential alone, and the limits and rights of the tenant.

A credential is an API key, or what the edge proved: a tenant's name from a token that it has checked, which the gateway
accepts only on a connection with the edge's certificate. Where a call has both, they must agree.

A key is refused from its expiry on (`api_keys.py`); calls that it has under way then end, as those of a revoked key do.

The tenants' file is read again when it has changed. One that cannot be read as a whole changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from hedgerow.tenants import A_NAME, is_name
from services.gateway.admission.api_keys import ApiKeys, BadTenants
from services.gateway.admission.quota import Allowance
from services.gateway.cache_eligibility.settings import NO_HITS_SAID, HitSettings
from services.gateway.config import KEY_WANTED
from services.gateway.errors import CredentialsDiffer, KeyUnknown
from services.gateway.guard.checks import prepare
from services.gateway.settings.guard import UNGUARDED, GuardSettings
from services.gateway.settings.permissions import PERMISSIONS
from services.gateway.settings.tenants import TenantPromptSettings, TenantSettings
from services.runtime import yaml_file
from services.runtime.deadline import Clock
from services.runtime.errors import shorten
from services.runtime.file_changes import FileChanges
from services.runtime.process import fixed
from services.runtime.security.secrets import HIDDEN, is_secret

LOCAL = "local"  # what callers without a credential are called, where they may be
_OPEN = "`allow_anonymous` (HEDGEROW_GATEWAY_ALLOW_ANONYMOUS=true) admits every caller"
_POLL_S = 0.4
_NOTHING = TenantSettings()
_GROUPS = ("guard", "hits", "prompt")  # of settings that a tenant may have of its own
_FILE = TypeAdapter(dict[str, TenantSettings])
_log = logging.getLogger(__name__)
_Settings = TypeVar("_Settings", bound=BaseModel)
_NONE = "an API key is required, as a bearer token"
_UNKNOWN = "a bearer token that this gateway knows is required; it does not know the one that it got"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant and what it may have."""

    name: str  # gives no right: the operator or the token's issuer chooses it
    premium: bool  # among the last to be shed
    weight: float  # its share when tenants compete
    allowance: Allowance
    max_budget_ms: int  # of one request; 0: no limit of its own
    prefix_salt: str = ""  # those with the same share what models have read; empty where there is one tenant alone
    tools: Sequence[str] = ()  # patterns of the tools of the mesh that it may use
    provider: Sequence[str] = ()  # fields by which its requests may have a provider do more than answer
    guard: GuardSettings = UNGUARDED  # what is looked for in its requests and answers
    warm: bool = False  # whether models read prompts for it before it asks
    hits: HitSettings = NO_HITS_SAID  # which of its questions the cache may answer, and how
    anonymous: bool = False  # all callers of a gateway that asks for no credential: it has the gateway to itself
    default_budget_ms: int = 0  # of a request that names none; 0: the gateway's
    max_tokens: int = 0  # of an answer; 0: no limit of its own
    prompt: TenantPromptSettings = TenantPromptSettings()  # noqa: RUF009  # it is frozen
    check_forms: bool | None = None  # whether answers are held to their form; None: as the gateway has it
    untranslated: str = ""  # `refuse` or `omit` fields that a model's API does not have; empty: as the gateway has it
    said: frozenset[str] = frozenset()  # settings that are its own, not the gateway's: `hits.others`, for example

    def checks_forms(self, *, by_default: bool) -> bool:
        """Whether its answers are held to their form where a request does not say it. `by_default`: the gateway's."""
        return by_default if self.check_forms is None else self.check_forms


class Identity:
    """Tenants by the SHA-256 of their keys, in hexadecimal.

    `tenants` and the YAML `file` give the keys of each tenant and what it may have; `guard` and `hits` are what holds
    where a tenant does not say.
    Without any key it is open to all, as the tenant `local`, where it may be (`anonymous`); or to those alone whose
    `tokens` the edge has checked. Once there has been a key it stays closed: to revoke the last one opens nothing.
    Raises `BadTenants` when the file or a key is not usable, or when there is neither a key nor one of the two.
    """

    def __init__(
        self,
        tenants: Mapping[str, TenantSettings],
        file: Path | None,
        *,
        anonymous: bool = False,
        tokens: bool = False,
        guard: GuardSettings = UNGUARDED,
        hits: HitSettings = NO_HITS_SAID,
        clock: Clock = time.time,
    ):
        self._guard, self._hits, self._clock = guard, hits, clock
        self._settings, self._file, self._tokens = tenants, file, tokens
        self._stamps = FileChanges(*filter(None, [file]))
        self._next_expiry = math.inf
        self._looked = -math.inf  # when the keys were last compared with the clock
        self.version = 0  # moves when a credential may mean something else than before
        settings = self._load()
        self._use(settings)
        if not (self._keys or anonymous or tokens):
            raise BadTenants(f"{file or 'tenants'}: {KEY_WANTED} to serve beyond loopback, got none; {_OPEN}")
        self._local = self._anonymous(settings) if anonymous and not self._keys else None
        self._warn_of_keyless()

    def tenant(self, authorization: str | None, proven: Sequence[str | bytes] = ()) -> Tenant:
        """The tenant of an `authorization` header (`Bearer <key>`), or the one whose name the edge has `proven`.

        Raises `KeyExpired`, `KeyUnknown`, also for more than one name, and `CredentialsDiffer`. A bearer token that is
        no known key, beside a proven name, is the token that the edge has checked.
        """
        name = self._keys.tenant_of(authorization, self._clock())
        known = None if name is None else self._tenants[name]
        if proven:
            return self._of_edge(proven, known)
        tenant = self._local or known
        if tenant is None:
            raise KeyUnknown(f"authorization: {_UNKNOWN if authorization else _NONE}")
        return tenant

    def _of_edge(self, proven: Sequence[str | bytes], known: Tenant | None) -> Tenant:
        name, *more = proven
        if more or not isinstance(name, str) or not is_name(name):
            raise KeyUnknown(f"the tenant that the edge proved: one name of {A_NAME} is required")
        if self._local and name == LOCAL:
            raise KeyUnknown(f"the tenant that the edge proved: {name} is what callers without a credential are called")
        if known and known.name != name:
            raise CredentialsDiffer("authorization: this API key is of another tenant than the token")
        return self._make(name, self._known)

    def warmed(self) -> Sequence[Tenant]:
        """A tenant for each salt that is kept warm."""
        if self._local:
            return [self._local] if self._local.warm else []
        warm = (self._make(name, self._known) for name, own in self._known.items() if own.warm)
        return list({tenant.prefix_salt: tenant for tenant in warm}.values())

    async def run(self) -> None:
        """Follow the file, where there is one, and the expiry of keys, until cancelled."""
        while self._file is not None or self._keys.may_expire:
            await asyncio.sleep(_POLL_S)
            await self.look()

    async def look(self) -> None:
        """Read the file again, if it has changed, and note the keys that have expired since the last look. A clock that
        was set back makes expired keys valid, so that they expire once more."""
        if self._stamps.changed():
            await self._reload()
        now = self._clock()
        if now < self._looked:
            self._next_expiry = self._keys.next_expiry(now)
        self._looked = now
        if self._next_expiry <= now:
            self._next_expiry = self._keys.next_expiry(now)
            self.version += 1
            self._warn_of_keyless()

    async def _reload(self) -> None:
        try:
            settings = await asyncio.to_thread(self._load)
            self._use(settings)
        except BadTenants as error:
            _log.error("%s; the tenants stay as they were", error)
            return
        self._local = None if self._keys or self._local is None else self._anonymous(settings)
        self.version += 1
        _log.info("tenants_file: read again; keys: %d", len(self._keys))
        self._warn_of_keyless()

    def _warn_of_keyless(self) -> None:
        """Warn of tenants that cannot authenticate."""
        keyless = self._known.keys() - self._keys.tenants(self._clock())
        if keyless and not (self._local or self._tokens):
            _log.warning("tenants: without a key, no caller can be %s", ", ".join(sorted(keyless)))

    def _use(self, settings: Mapping[str, TenantSettings]) -> None:
        """Take these tenants and their keys. Raises `BadTenants` for a key of two, and for a name that is none."""
        for name in settings:
            if not is_name(name):
                raise BadTenants(f"tenants: a name of {A_NAME}, got {shorten(ascii(name))}")
        keys, now = ApiKeys(settings), self._clock()
        self._keys, self._known, self._next_expiry, self._looked = keys, settings, keys.next_expiry(now), now
        self._tenants = {name: self._make(name, settings) for name in settings}

    def _anonymous(self, settings: Mapping[str, TenantSettings]) -> Tenant:
        return self._make(LOCAL, settings, anonymous=True)

    def _make(self, name: str, settings: Mapping[str, TenantSettings], *, anonymous: bool = False) -> Tenant:
        own = settings.get(name, _NOTHING)
        allowance = Allowance(own.requests_per_s, own.requests_burst, own.tokens_per_minute, own.concurrency)
        salt = "" if anonymous and not own.prefix_group else _salt(name, own.prefix_group)
        alone = anonymous and name not in settings
        guard, hits = _but_for(self._guard, own.guard), _but_for(self._hits, own.hits)
        return Tenant(
            name,
            own.premium,
            own.weight,
            allowance,
            own.max_budget_ms,
            salt,
            tools=("*",) if alone else own.tools,
            provider=PERMISSIONS if alone else own.provider,
            guard=guard,
            warm=alone or own.warm,
            hits=hits,
            anonymous=anonymous,
            default_budget_ms=own.default_budget_ms,
            max_tokens=own.max_tokens,
            prompt=own.prompt,
            check_forms=own.check_forms,
            untranslated=own.untranslated or "",
            said=frozenset(f"{group}.{name}" for group in _GROUPS for name in getattr(own, group).model_fields_set),
        )

    def _load(self) -> Mapping[str, TenantSettings]:
        """All tenants that have settings, those of the file included, with their guards' patterns compiled."""
        settings = self._read()
        prepare([self._guard, *(_but_for(self._guard, own.guard) for own in settings.values())])
        return settings

    def _read(self) -> Mapping[str, TenantSettings]:
        if self._file is None:
            return self._settings
        read = _parse(self._file)
        for name in read.keys() & self._settings.keys():
            raise BadTenants(f"tenants_file: {name}: is in the setting `tenants` already")
        return {**self._settings, **read}


def _but_for(ours: _Settings, own: _Settings) -> _Settings:
    """The gateway's, but for what the tenant's own say."""
    said = own.model_fields_set
    return ours.model_copy(update={name: getattr(own, name) for name in said}) if said else ours


def _parse(file: Path) -> dict[str, TenantSettings]:
    try:
        given = yaml_file.parse(file.read_text("utf-8"))
        for name, own in given.items() if isinstance(given, dict) else ():
            fixed.refuse(TenantSettings, own if isinstance(own, dict) else {}, at=f"{name}.")
        return _FILE.validate_python(given)
    except ValidationError as error:
        problem = error.errors()[0]
        path = problem["loc"]
        field, why = ".".join(map(str, path)) or str(file), problem["msg"].removeprefix("Value error, ")
        # A key may stand for a tenant, or under a name that is misspelt.
        hides = len(path) < 2 or problem["type"] == "extra_forbidden" or is_secret(TenantSettings, path[1:])
        given = HIDDEN if hides else shorten(repr(problem["input"]))
        raise BadTenants(f"tenants_file: {field}: {why}, got {given}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BadTenants(f"tenants_file: {' '.join(str(error).split())}") from None


@lru_cache(maxsize=10_000)
def _salt(name: str, group: str) -> str:
    """A tenant's cache salt: the same in every gateway and after a restart, so that cached prefixes stay valid. It
    needs no secret: only gateways send salts to models, and no caller can choose the salt of a prompt."""
    kind, whose = (b"group", group) if group else (b"tenant", name)
    return hashlib.blake2b(whose.encode(), digest_size=16, person=b"prefix " + kind).hexdigest()
