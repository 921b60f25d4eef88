"""The services that a mesh file means, with the settings of each.

A `Part` says nothing of where its service runs. Its runner (`processes` on this machine, `compose`, `helm`)
gives it addresses, and its folders and keys in its own way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from hedgerow.identities import CONTEXT_SERVICES
from launcher.demo import LIMITS
from launcher.mesh import collections_at
from launcher.meshfile import provider_models
from launcher.meshfile.fields import read_key
from launcher.meshfile.model_identity import identity_of
from launcher.meshfile.models import Model, Settings
from launcher.meshfile.names import process_names, service_name
from launcher.meshfile.problems import Steps
from launcher.meshfile.schema import Audio, Cache, MeshFile, Vision
from launcher.meshfile.tenants import Tenant

_PROVIDER_GIB, _ENGINE_GIB, _CACHE_GIB = 0.5, 4.0, 1.75  # the latter beside the entries
_USUAL_MAX_BYTES = 2**28  # of a cache's entries


@dataclass(frozen=True)
class CredentialSource:
    """The place of a credential: an environment variable or a file."""

    variable: str = ""
    file: Path | None = None

    def value(self, environment: Mapping[str, str]) -> str:
        """The credential. Raises ValueError, whose message does not contain it."""
        return read_key(self.file) if self.file else environment[self.variable].strip()


@dataclass(frozen=True)
class Part:
    """A service with `replicas` processes. Settings have their environment's names without the prefix."""

    name: str  # `llm-fast`
    service: str  # `llm`
    at: Steps  # in the file
    settings: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, Steps] = field(default_factory=dict)  # where in the file a setting comes from
    folders: Mapping[str, Path] = field(default_factory=dict)  # settings that are a folder or a file on this machine
    keys: Mapping[str, CredentialSource] = field(default_factory=dict)  # settings that are credentials
    replicas: int = 1
    memory_gib: float = 1.0
    gpus: int = 0
    from_hub: bool = False
    leaves: bool = False  # whether it calls servers outside

    def prefixed(self, setting: str) -> str:
        """The variable of a setting."""
        return f"HEDGEROW_{self.service.upper()}_{setting}"


def parts(file: MeshFile) -> list[Part]:
    """All services of a mesh, the gateway last. They have no addresses yet: see `gateway_finds`."""
    found = [_cache(file)] if file.cache.enabled else []
    found += [_router(file), *(part for name in file.models for part in _model(name, file))]
    found += [_vision(file.vision)] if file.vision else []
    found += [_audio(file.audio)] if file.audio else []
    found += [
        _with_more(Part(name, name, ("services", name), memory_gib=0.25), given.settings)
        for name, given in file.services.items()
    ]
    everywhere: dict[str, Any] = {}
    if file.tracing:
        everywhere = {"OTLP_ENDPOINT": file.tracing.otlp_endpoint, "TRACE_RATIO": file.tracing.ratio}
    return [replace(part, settings={**everywhere, **part.settings}) for part in [*found, _gateway(file)]]


def gateway_finds(found: Sequence[Part], addresses: Callable[[Part], Sequence[str]]) -> dict[str, Any]:
    """The gateway's settings with the addresses of other services."""
    alone = {part.service: addresses(part)[0] for part in found if part.service != "llm"}
    names = ("cache", "router", "vision", "audio")
    models: dict[str, list[str]] = {}
    for part in found:
        if part.service == "llm":
            models.setdefault(part.settings["MODEL_NAME"], []).extend(addresses(part))
    settings = {**{f"{name.upper()}_ADDRESS": alone.get(name, "") for name in names}, "LLM_ADDRESSES": models}
    if adding := {name: alone[name] for name in CONTEXT_SERVICES if name in alone}:
        settings["STAGE_ADDRESSES"] = adding
    if cache := alone.get("cache"):
        gateway = next(part for part in found if part.service == "gateway")
        settings["TOOLS"] = _with_collections(gateway.settings.get("TOOLS", {}), cache)
    return settings


def _with_collections(tools: Any, cache: str) -> Any:
    """The setting `tools` with the cache's collections as its last source, unless it has one of that name. What is no
    such setting stays as it is: the gateway says what is wrong with it."""
    sources = tools.get("sources", {}) if isinstance(tools, dict) else None
    if not isinstance(sources, dict):
        return tools
    more = {name: source for name, source in collections_at(cache).items() if name not in sources}
    return {**tools, "sources": {**sources, **more}}


def as_text(value: Any) -> str:
    """A setting's value as text of a variable."""
    return value if isinstance(value, str) else json.dumps(value)


def tenants_of(file: MeshFile, environment: Mapping[str, str]) -> dict[str, Any]:
    """The tenants in the form of the gateway's file, with the SHA-256 of keys."""
    return {name: _tenant(tenant, environment) for name, tenant in file.tenants.items()}


def _tenant(tenant: Tenant, environment: Mapping[str, str]) -> dict[str, Any]:
    keys = [CredentialSource(variable=name).value(environment) for name in tenant.key_env]
    keys += [read_key(tenant.key_file)] if tenant.key_file else []
    digests = [*(key.for_gateway() for key in tenant.key_sha256), *(sha256(key.encode()).hexdigest() for key in keys)]
    said = tenant.model_dump(exclude={"key_env", "key_file", "key_sha256"}, exclude_unset=True)
    return {"keys": digests, **said}


def _with_more(part: Part, settings: Settings) -> Part:
    """The part with the file's settings of the service, which override the mesh's defaults."""
    more = {name.upper(): value for name, value in settings.items()}
    origins = {name.upper(): (*part.at, "settings", name) for name in settings}
    return replace(part, settings={**part.settings, **more}, origins={**part.origins, **origins})


def _cache(file: MeshFile) -> Part:
    shared = _shared(file)
    if file.cache.encryption_key_env:
        shared["keys"] = {
            **shared.get("keys", {}),
            "ENCRYPTION_KEY": CredentialSource(variable=file.cache.encryption_key_env),
        }
    if not file.compares:
        shared["settings"] = {**shared["settings"], "LOAD_EMBEDDER": "first_use"}
    part = _with_more(Part("cache", "cache", ("cache",), **shared), file.cache.settings)
    said = str(part.settings.get("MAX_BYTES"))  # the cache refuses what is no number
    entries = max(_USUAL_MAX_BYTES, int(said) if said.isdecimal() else 0)
    return replace(part, memory_gib=_CACHE_GIB + entries / 2**30)


def _router(file: MeshFile) -> Part:
    catalogue = [_in_catalogue(name, model) for name, model in file.models.items()]
    shared = _shared(file)
    settings = {**shared.pop("settings"), "MODELS": catalogue}
    part = Part("router", "router", ("router",), settings, {"MODELS": ("models",)}, memory_gib=0.25, **shared)
    return _with_more(part, file.router.settings)


def _gateway(file: MeshFile) -> Part:
    given, shared = file.gateway, _shared(file)
    said = {"WORKERS": given.workers, "ALLOW_ANONYMOUS": given.allow_anonymous, "PLAINTEXT": given.plaintext}
    settings = {**shared.pop("settings"), "PROFILE": file.profile, **_stored_answers(file.cache)}
    if serves := {name: list(model.methods) for name, model in file.models.items() if model.methods}:
        settings["SERVES"] = serves
    settings |= {name: value for name, value in said.items() if name.lower() in given.model_fields_set}
    # Errors about callers are reported at the address that admits them.
    origins: dict[str, Steps] = dict.fromkeys(("ADDRESS", "PLAINTEXT", "ALLOW_ANONYMOUS"), ("gateway", "address"))
    origins |= {"WORKERS": ("gateway", "workers"), "HTTP_ADDRESS": ("gateway", "http"), "LLM_ADDRESSES": ("models",)}
    origins |= {"TENANTS": ("tenants",), "SERVES": ("models",)}
    folders = {"TENANTS_FILE": file.tenants_file} if file.tenants_file else {}
    memory = 0.5 * given.workers
    part = Part("gateway", "gateway", ("gateway",), settings, origins, folders, memory_gib=memory, **shared)
    return _with_more(part, _with_hits(given.settings, settings.get("HITS", {})))


def _with_hits(settings: Settings, hits: Mapping[str, Any]) -> Settings:
    """The gateway's own settings, where `hits` also has what the file's `cache` says: its own fields are stronger.
    What is no such setting stays as it is: the gateway says what is wrong with it."""
    place = next((name for name in settings if name.lower() == "hits"), "")
    own = settings.get(place)
    return {**settings, place: {**hits, **own}} if isinstance(own, dict) else settings


def _stored_answers(cache: Cache) -> dict[str, Any]:
    """The default use and scope of stored answers, if the file sets them."""
    said: dict[str, Any] = {"scope": cache.scope} if cache.scope else {}
    if cache.semantic:
        said["others"] = "any"
    elif not (cache.exact is None and cache.semantic is None):
        said["others"] = "exact" if cache.exact else "off"
    return {"HITS": said} if said else {}


def _shared(file: MeshFile) -> dict[str, Any]:
    """Redis, for those whose replicas share state."""
    if file.cache.redis_url_env:
        return {"settings": {}, "keys": {"REDIS_URL": CredentialSource(variable=file.cache.redis_url_env)}}
    return {"settings": {"REDIS_URL": file.cache.redis_url} if file.cache.redis_url else {}}


def _vision(given: Vision) -> Part:
    settings = {"DEFAULT_MODEL": given.default} if given.default else {}
    place = "catalog" if given.catalog else "models"
    origins: dict[str, Steps] = {"MODELS_DIR": ("vision", place), "DEFAULT_MODEL": ("vision", "default")}
    part = Part("vision", "vision", ("vision",), settings, origins, {"MODELS_DIR": given.local}, memory_gib=2)
    return _with_more(part, given.settings)


def _audio(given: Audio) -> Part:
    folders = {"MODEL": given.local} if given.local else {}
    settings = {} if given.local else {"MODEL": given.hub}
    part = Part(
        "audio", "audio", ("audio",), settings, {}, folders, memory_gib=2, from_hub=not folders, leaves=not folders
    )
    return _with_more(part, given.settings)


def _model(name: str, file: MeshFile) -> Iterator[Part]:
    """One, or one for each of its URLs."""
    model = file.models[name]
    services = process_names(service_name(name), len(model.url))
    for service, url in zip(services, model.url or [""], strict=True):
        part = _served(service, name, model, url)
        usual = LIMITS if file.profile == "latency" else {}
        yield _with_more(replace(part, settings={**usual, **part.settings}), model.settings)


def _served(service: str, name: str, model: Model, url: str) -> Part:
    at = ("models", name)
    settings: dict[str, Any] = {"MODEL_NAME": name, "ENGINE": model.engine_used}
    if identity := identity_of(model):
        settings["IDENTITY"] = identity
    if model.max_tokens:
        settings |= {"MAX_TOKENS_CAP": model.max_tokens, "DEFAULT_MAX_TOKENS": model.max_tokens}
    origins: dict[str, Steps] = {"ENGINE": (*at, "engine"), "MODEL_NAME": at}
    origins |= dict.fromkeys(("MAX_TOKENS_CAP", "DEFAULT_MAX_TOKENS"), (*at, "max_tokens"))
    group = model.options_of.upper()
    settings[group] = {**_of_engine(name, model, url), **model.options}
    origins[group] = (*at, "options")
    key = CredentialSource(model.key_env or "", model.key_file)
    return Part(
        name=service,
        service="llm",
        at=at,
        settings=settings,
        origins=origins,
        folders={f"{group}__MODEL": model.local} if model.local else {},
        keys={f"{group}__API_KEY": key} if key.variable or key.file else {},
        replicas=model.replicas,
        memory_gib=model.memory_gib or (_PROVIDER_GIB if model.url else _ENGINE_GIB),
        gpus=model.gpus,
        from_hub=bool(model.hub),
        leaves=bool(model.hub or model.url),
    )


def _of_engine(name: str, model: Model, url: str) -> dict[str, Any]:
    """The engine's own settings that the file has words for."""
    if url:
        said: dict[str, Any] = {"base_url": url, "model": model.model or name}
        if model.takes_pictures(name) and model.engine_used == "openai":  # which takes none by default
            said["features"] = ["tools", "logprobs", "logit_bias", "images"]
        if model.methods:
            said["apis"] = list(model.methods)
        return said | ({"context_tokens": model.context_tokens} if model.context_tokens else {})
    said = {"model": model.hub} if model.hub else {}
    return said | ({"max_model_len": model.context_tokens} if model.context_tokens else {})


def _in_catalogue(name: str, model: Model) -> dict[str, Any]:
    """The router's row. Unknown fields are left out."""
    public = provider_models.find(model.url[0], model.model or name) if model.url else provider_models.UNKNOWN
    prices = model.prices if "prices" in model.model_fields_set else public
    said: dict[str, Any] = {"name": name, "tier": model.tier}
    if identity := identity_of(model):
        said["identity"] = identity
    if model.takes_pictures(name):
        said["sees"] = True
    optional = {
        "context_tokens": model.context_tokens or _context_of(model.local) or public.context_tokens,
        "prompt_usd_per_mtok": prices.input,
        "completion_usd_per_mtok": prices.output,
        "cached_prompt_usd_per_mtok": prices.cached_input,
        "cache_write_usd_per_mtok": prices.cache_write,
        "expected_ttft_ms": model.expected_ttft_ms,
        "expected_total_ms": model.expected_total_ms,
    }
    return said | {key: value for key, value in optional.items() if value is not None}


def _context_of(folder: Path | None) -> int | None:
    """The context length in a model's own configuration."""
    if folder is None:
        return None
    try:
        said = json.loads((folder / "config.json").read_text("utf-8")).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None
    return said if isinstance(said, int) and said > 0 else None
