"""The tenant of a call, which comes from its credential alone, and the limits and rights of the tenant.

A credential is an API key, or a tenant's name from a token that the edge has checked. The gateway accepts such a name
only on a connection with the edge's certificate. If a call has both, they must agree.

From its expiry on a key is refused (`api_keys.py`), and calls under way with it end, as those of a revoked key do.

The tenants' file is read again when it has changed. An invalid file changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from hedgerow.tenants import A_NAME, is_name
from services.gateway.admission.api_keys import ApiKeys, BadTenants
from services.gateway.admission.quota import Allowance
from services.gateway.cache_eligibility.settings import DEFAULT_HITS, HitSettings
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

LOCAL = "local"  # the tenant of callers without a credential, where they are admitted
_OPEN_TO_ALL = "`allow_anonymous` (HEDGEROW_GATEWAY_ALLOW_ANONYMOUS=true) admits every caller"
_POLL_S = 0.4
_NO_SETTINGS = TenantSettings()
_SETTING_GROUPS = ("guard", "hits", "prompt")  # of settings, each a model, that a tenant may override
_FILE = TypeAdapter(dict[str, TenantSettings])
_log = logging.getLogger(__name__)
_Settings = TypeVar("_Settings", bound=BaseModel)
_KEY_REQUIRED = "an API key is required, as a bearer token"
_KEY_UNKNOWN = "a bearer token that this gateway knows is required; it does not know the one that it got"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant with its limits and rights."""

    name: str  # gives no right: the operator or the token's issuer chooses it
    _: KW_ONLY
    premium: bool = False  # among the last to be shed
    weight: float = 1.0  # its share when tenants compete
    allowance: Allowance = Allowance()  # noqa: RUF009  # it is frozen
    max_budget_ms: int = 0  # of one request; 0: no limit of its own
    default_budget_ms: int = 0  # of a request that names none; 0: the gateway's
    max_tokens: int = 0  # of an answer; 0: no limit of its own
    prefix_salt: str = ""  # tenants with equal salts share prefix caches; empty for a gateway's only tenant
    tools: Sequence[str] = ()  # patterns of the mesh tools that it may use: `source/name`
    provider: Sequence[str] = ()  # permissions for fields that cost more, or store data at a provider
    guard: GuardSettings = UNGUARDED  # checks of its requests and answers
    hits: HitSettings = DEFAULT_HITS  # questions that the cache may answer
    prompt: TenantPromptSettings = TenantPromptSettings()  # noqa: RUF009  # it is frozen
    warm: bool = False  # whether models read the prompts of `warm` in advance for it
    anonymous: bool = False  # stands for all callers of a gateway that requires no credential
    check_forms: bool | None = None  # whether answers are checked against their form; None: the gateway's setting
    untranslated: str = ""  # `refuse` or `omit` fields that a model's API lacks; empty: the gateway's setting
    overrides: frozenset[str] = frozenset()  # paths of settings that are its own, such as `hits.others`

    def checks_forms(self, *, by_default: bool) -> bool:
        """Whether answers are checked against their form if the request does not say. `by_default`: the gateway's
        setting."""
        return by_default if self.check_forms is None else self.check_forms


class Identity:
    """The tenants of a gateway, by API key or by the name that the edge has proven.

    `tenants` and the YAML `file` have the SHA-256 of each tenant's keys, its limits and rights; `guard` and `hits` are
    the gateway's settings, which a tenant may override.
    Without any key, `anonymous` admits all callers as the tenant `local`, and `tokens` those whose token the edge has
    checked. After a first key callers need a credential for good: to revoke the last key admits no one.
    Raises `BadTenants` for an invalid file or key, and where there is no key, no `anonymous` and no `tokens`.
    """

    def __init__(
        self,
        tenants: Mapping[str, TenantSettings],
        file: Path | None,
        *,
        anonymous: bool = False,
        tokens: bool = False,
        guard: GuardSettings = UNGUARDED,
        hits: HitSettings = DEFAULT_HITS,
        clock: Clock = time.time,
    ):
        self._guard, self._hits, self._clock = guard, hits, clock
        self._settings, self._file, self._tokens = tenants, file, tokens
        self._changes = FileChanges(*filter(None, [file]))
        self._next_expiry = math.inf
        self._refreshed_at = -math.inf  # when the keys were last compared with the clock
        self.version = 0  # counts up when the tenant of a credential may have changed
        settings = self._load()
        self._use(settings)
        if not (self._keys or anonymous or tokens):
            raise BadTenants(f"{file or 'tenants'}: {KEY_WANTED} to serve beyond loopback, got none; {_OPEN_TO_ALL}")
        self._local = self._anonymous_tenant(settings) if anonymous and not self._keys else None
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
            raise KeyUnknown(f"authorization: {_KEY_UNKNOWN if authorization else _KEY_REQUIRED}")
        return tenant

    def _of_edge(self, proven: Sequence[str | bytes], known: Tenant | None) -> Tenant:
        name, *more = proven
        if more or not isinstance(name, str) or not is_name(name):
            raise KeyUnknown(f"the tenant that the edge proved: one name of {A_NAME} is required")
        if self._local and name == LOCAL:
            raise KeyUnknown(f"the tenant that the edge proved: {name} is what callers without a credential are called")
        if known and known.name != name:
            raise CredentialsDiffer("authorization: this API key is of another tenant than the token")
        return self._tenant(name, self._known)

    def warmed(self) -> Sequence[Tenant]:
        """The tenants with `warm`, one for each salt."""
        if self._local:
            return [self._local] if self._local.warm else []
        warm = (self._tenant(name, self._known) for name, own in self._known.items() if own.warm)
        return list({tenant.prefix_salt: tenant for tenant in warm}.values())

    async def run(self) -> None:
        """Follow the file, where there is one, and the expiry of keys, until cancelled."""
        while self._file is not None or self._keys.may_expire:
            await asyncio.sleep(_POLL_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Read the file again if it has changed, and count up `version` if keys have expired since the last call. A
        clock that was set back makes expired keys valid, so that they expire once more."""
        if self._changes.changed():
            await self._reload()
        now = self._clock()
        if now < self._refreshed_at:
            self._next_expiry = self._keys.next_expiry(now)
        self._refreshed_at = now
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
        self._local = None if self._keys or self._local is None else self._anonymous_tenant(settings)
        self.version += 1
        _log.info("tenants_file: read again; keys: %d", len(self._keys))
        self._warn_of_keyless()

    def _warn_of_keyless(self) -> None:
        """Warn of tenants that cannot authenticate."""
        keyless = self._known.keys() - self._keys.tenants(self._clock())
        if keyless and not (self._local or self._tokens):
            _log.warning("tenants: without a key, no caller can be %s", ", ".join(sorted(keyless)))

    def _use(self, settings: Mapping[str, TenantSettings]) -> None:
        """Take these tenants and their keys. Raises `BadTenants` for an invalid name, and a key of two tenants."""
        for name in settings:
            if not is_name(name):
                raise BadTenants(f"tenants: a name of {A_NAME}, got {shorten(ascii(name))}")
        keys, now = ApiKeys(settings), self._clock()
        self._keys, self._known, self._next_expiry, self._refreshed_at = keys, settings, keys.next_expiry(now), now
        self._tenants = {name: self._tenant(name, settings) for name in settings}

    def _anonymous_tenant(self, settings: Mapping[str, TenantSettings]) -> Tenant:
        return self._tenant(LOCAL, settings, anonymous=True)

    def _tenant(self, name: str, settings: Mapping[str, TenantSettings], *, anonymous: bool = False) -> Tenant:
        own = settings.get(name, _NO_SETTINGS)
        allowance = Allowance(own.requests_per_s, own.requests_burst, own.tokens_per_minute, own.concurrency)
        salt = "" if anonymous and not own.prefix_group else _salt(name, own.prefix_group)
        alone = anonymous and name not in settings
        guard, hits = _overridden(self._guard, own.guard), _overridden(self._hits, own.hits)
        return Tenant(
            name,
            premium=own.premium,
            weight=own.weight,
            allowance=allowance,
            max_budget_ms=own.max_budget_ms,
            prefix_salt=salt,
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
            overrides=frozenset(
                f"{group}.{name}" for group in _SETTING_GROUPS for name in getattr(own, group).model_fields_set
            ),
        )

    def _load(self) -> Mapping[str, TenantSettings]:
        """All tenants that have settings, those of the file included, with their guards' patterns compiled."""
        settings = self._read()
        prepare([self._guard, *(_overridden(self._guard, own.guard) for own in settings.values())])
        return settings

    def _read(self) -> Mapping[str, TenantSettings]:
        if self._file is None:
            return self._settings
        read = _parse(self._file)
        for name in read.keys() & self._settings.keys():
            raise BadTenants(f"tenants_file: {name}: is in the setting `tenants` already")
        return {**self._settings, **read}


def _overridden(gateways: _Settings, own: _Settings) -> _Settings:
    """The gateway's settings with the fields that are set in the tenant's own."""
    fields = own.model_fields_set
    return gateways.model_copy(update={name: getattr(own, name) for name in fields}) if fields else gateways


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
