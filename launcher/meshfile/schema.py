"""The keys of a mesh file. Its fields' descriptions are docs/mesh-file.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from launcher.catalog import home
from launcher.mesh import HTTP_OFFSET
from launcher.meshfile.fields import (
    LAST_PORT,
    OFF,
    Address,
    AddressOrOff,
    ContextService,
    ExistingFile,
    ExistingFolder,
    HttpUrl,
    NewFile,
    RedisUrl,
    SpeechModel,
    VariableName,
    VisionModel,
    is_catalogued,
    is_folder,
    is_loopback,
)
from launcher.meshfile.models import SERVICE_SETTINGS, Model, ModelName, Section, Settings, WithSettings
from launcher.meshfile.tenants import Tenant, TenantName


class Gateway(WithSettings):
    """The gateway. In short, its address or its port alone."""

    elsewhere: ClassVar[Mapping[str, str]] = {
        "address": "address",
        "http_address": "http",
        **{name: name for name in ("workers", "allow_anonymous", "plaintext")},
        **{f"{name}_address": name for name in ("cache", "router", "vision", "audio")},
        "stage_addresses": "services",
        "llm_addresses": "models",
        "serves": "models",
        "redis_url": "cache.redis_url",
        "tenants": "the file's own tenants",
        "tenants_file": "the file's own tenants_file",
    }

    address: Address = Field("127.0.0.1:50050", description="Address of gRPC, host:port, or a port on loopback.")
    http: AddressOrOff = Field(
        "", description="Address of HTTP, or `off`. Default: the port of `address` plus 30 on loopback, else none."
    )
    workers: int = Field(1, ge=1, le=256, description="Processes that share the port.")
    allow_anonymous: bool = Field(False, description="Admit every caller, also beyond loopback.")
    plaintext: bool = Field(
        False, description="Serve plain text beyond loopback, in a network with its own encryption."
    )
    settings: Settings = Field({}, description=f"{SERVICE_SETTINGS} `default_budget_ms`.")

    @field_validator("http")
    @classmethod
    def _of_its_own(cls, http: str, info: ValidationInfo) -> str:
        if http and http == info.data.get("address"):
            raise ValueError("another port than that of address is needed")
        return http

    @property
    def http_address(self) -> str:
        """The address of HTTP; empty: none."""
        host, _, port = self.address.rpartition(":")
        http_port = int(port) + HTTP_OFFSET
        usual = f"{host}:{http_port}" if is_loopback(self.address) and http_port <= LAST_PORT else ""
        return "" if self.http == OFF else self.http or usual


class Cache(WithSettings):
    """Stored answers. `cache: false` turns it off."""

    elsewhere: ClassVar[Mapping[str, str]] = {
        "database": "database",
        "collections_database": "collections",
        "redis_url": "redis_url",
        "encryption_key": "encryption_key_env",
    }

    enabled: bool = Field(True, description="Whether there is one.")
    exact: bool | None = Field(
        None, description="Whether equal questions get the stored answer. Default: by `profile`."
    )
    semantic: bool | None = Field(None, description="Whether questions in other words get it too. Implies `exact`.")
    scope: Literal["tenant", "user"] | None = Field(
        None, description="Stored answers for all end users of a tenant (default), or for each."
    )
    database: NewFile | None = Field(None, description="SQLite file of the entries. Default: in the state folder.")
    collections: NewFile | None = Field(
        None, description="SQLite file of the collections. Default: in the state folder."
    )
    redis_url: RedisUrl | None = Field(None, description="[Redis](redis.md) that replicas share. Without a password.")
    redis_url_env: VariableName | None = Field(
        None, description="Environment variable with the URL, if it has a password."
    )
    encryption_key_env: VariableName | None = Field(
        None, description="Environment variable with the key that encrypts entries."
    )
    settings: Settings = Field({}, description=f"{SERVICE_SETTINGS} `similarity_threshold`.")

    @field_validator("redis_url_env")
    @classmethod
    def _one_redis(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name and info.data.get("redis_url"):
            raise ValueError("not together with redis_url: one Redis")
        return name


class Router(WithSettings):
    """The router, which chooses the model."""

    elsewhere: ClassVar[Mapping[str, str]] = {"models": "the file's own models", "redis_url": "cache.redis_url"}

    settings: Settings = Field({}, description=f"{SERVICE_SETTINGS} `log_level`.")


class Vision(WithSettings):
    """Classification of images: `models` or `catalog` is required. In short, one of the two alone."""

    may_be_text = True
    elsewhere: ClassVar[Mapping[str, str]] = {"models_dir": "models or catalog", "default_model": "default"}

    models: ExistingFolder | None = Field(None, description="Folder of folders, each with a `model.yaml`.")
    catalog: VisionModel | None = Field(
        None, validate_default=True, description="Name in the catalogue, for example `efficientnet-lite0`."
    )
    default: str = Field("", description="Model of requests that name none.")
    settings: Settings = Field({}, description=f"{SERVICE_SETTINGS} `max_pixels`.")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, str):
            return given
        return {"models" if is_folder(given, info) or not is_catalogued(given) else "catalog": given}

    @field_validator("catalog")
    @classmethod
    def _one_place(cls, catalog: str | None, info: ValidationInfo) -> str | None:
        if "models" in info.data and bool(catalog) == bool(info.data["models"]):
            raise ValueError("one of models and catalog is needed")
        return catalog

    @property
    def local(self) -> Path:
        """The folder that the service is given. A model of the catalogue may not be pulled yet."""
        folder = home(self.catalog) if self.catalog else self.models
        assert folder is not None  # `_one_place`
        return folder


class Audio(WithSettings):
    """Transcription: `folder`, `catalog` or `hub` is required. In short, one of the three alone."""

    may_be_text = True
    elsewhere: ClassVar[Mapping[str, str]] = {"model": "folder, catalog or hub"}

    folder: ExistingFolder | None = Field(None, description="Folder of a CTranslate2 Whisper model.")
    catalog: SpeechModel | None = Field(None, description="Name in the catalogue, for example `whisper-base`.")
    hub: Annotated[str, Field(min_length=1)] | None = Field(
        None, validate_default=True, description="Name on the hub, for example `large-v3-turbo`."
    )
    settings: Settings = Field({}, description=f"{SERVICE_SETTINGS} `language`.")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, str):
            return given
        return {"folder" if is_folder(given, info) else "catalog" if is_catalogued(given) else "hub": given}

    @field_validator("hub")
    @classmethod
    def _one_place(cls, hub: str | None, info: ValidationInfo) -> str | None:
        places = ("folder", "catalog")
        given = [name for name in places if info.data.get(name)] + ["hub"] * bool(hub)
        if set(places) <= info.data.keys() and len(given) != 1:
            raise ValueError(f"one of folder, catalog and hub is needed, has {' and '.join(given) or 'none'}")
        return hub

    @property
    def local(self) -> Path | None:
        """The folder that the service loads; None for the hub. A model of the catalogue may not be pulled yet."""
        return home(self.catalog) if self.catalog else self.folder


class Adding(WithSettings):
    """A service that adds context to questions."""

    settings: Settings = Field({}, description=f"{SERVICE_SETTINGS} `log_level`.")


class Tracing(Section):
    """Destination of traces. In short, the endpoint alone."""

    otlp_endpoint: HttpUrl = Field(description="OTLP/gRPC endpoint, http://host:port.")
    ratio: float = Field(1.0, ge=0, le=1, description="Share of new traces that are recorded.")


def _alone(field: str, *kinds: type, of: type[Section]) -> BeforeValidator:
    """A section that may be its one field alone."""
    return BeforeValidator(
        lambda given: {field: given} if isinstance(given, kinds) else given,
        json_schema_input_type=Union[(of, *kinds)],  # of kinds that are arguments
    )


class MeshFile(Section):
    """The whole file. Paths are relative to its folder."""

    models: dict[ModelName, Model] = Field(min_length=1, description="Models by the names that callers see.")
    tenants: dict[TenantName, Tenant] = Field(
        {}, description="Tenants by name. Without any, every program on this machine may call."
    )
    tenants_file: ExistingFile | None = Field(
        None, description="Instead of `tenants`: a file as HEDGEROW_GATEWAY_TENANTS_FILE."
    )
    profile: Literal["transparent", "latency"] = Field(
        "transparent", description="Defaults of the mesh (profiles, above)."
    )
    gateway: Annotated[Gateway, _alone("address", str, int, of=Gateway)] = Field(
        Gateway(), description="Addresses and settings of the gateway."
    )
    cache: Annotated[Cache, _alone("enabled", bool, of=Cache)] = Field(Cache(), description="Stored answers.")
    router: Router = Field(Router(), description="Settings of the router.")
    vision: Vision | None = Field(None, description="Pictures. Without it: none.")
    audio: Audio | None = Field(None, description="Recordings and conversations. Without it: none.")
    services: dict[ContextService, Adding] = Field({}, description="Services that add context to questions, by name.")
    tracing: Annotated[Tracing, _alone("otlp_endpoint", str, of=Tracing)] | None = Field(
        None, description="Destination of traces."
    )
    base_port: Annotated[int, Field(ge=1, le=65_000)] | None = Field(
        None, description="First port of the other services, on loopback. Default: after the gateway's."
    )

    @field_validator("models")
    @classmethod
    def _one_chats(cls, models: dict[str, Model]) -> dict[str, Model]:
        if models and all(model.methods for model in models.values()):
            raise ValueError(f"a model that chats is needed: {', '.join(models)} serves other requests alone")
        return models

    @field_validator("tenants_file")
    @classmethod
    def _one_list(cls, file: Path | None, info: ValidationInfo) -> Path | None:
        if file and info.data.get("tenants"):
            raise ValueError("not together with tenants: one of the two")
        return file

    @property
    def comparing(self) -> list[str]:
        """The places of `hits` with an `any`: of the gateway and of tenants."""
        said = {"gateway.settings.hits": self.gateway.settings.get("hits")}
        said |= {f"tenants.{name}.hits": tenant.hits for name, tenant in self.tenants.items()}
        return [place for place, hits in said.items() if isinstance(hits, dict) and "any" in hits.values()]

    @property
    def compares(self) -> bool:
        """Whether questions are compared by meaning without a request for it: by the cache, a kind or a tenant."""
        if self.comparing:
            return True
        if self.cache.exact is None and self.cache.semantic is None:
            return self.profile == "latency"
        return bool(self.cache.semantic)
