"""The keys of models in a mesh file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from hedgerow.engines import ENGINES, NAME_PATTERN, PROVIDER_ENGINES
from launcher.catalog import home
from launcher.meshfile import provider_models
from launcher.meshfile.fields import (
    ExistingFolder,
    HttpUrls,
    KeyFile,
    LanguageModel,
    VariableName,
    credential_in,
    is_catalogued,
    is_folder,
    is_url,
)

Settings = dict[str, JsonValue]
Milliseconds = Annotated[float, Field(gt=0, le=600_000)]
MOST_REPLICAS = 64
CHAT: Literal["chat"] = "chat"
_Kind = Literal["chat", "embeddings", "rerank", "moderations"]
KINDS: tuple[str, ...] = get_args(_Kind)
Serves = Annotated[
    tuple[_Kind, ...],
    BeforeValidator(
        lambda given: (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list) else given,
        json_schema_input_type=_Kind | list[_Kind],
    ),
]
Dollars = Annotated[float, Field(ge=0, le=1_000)]
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}$")]
SERVICE_SETTINGS = "Settings of the service (settings.md), such as"


class Section(BaseModel):
    """A part of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())
    may_be_text: ClassVar[bool] = False  # in short: one of its fields alone

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        section = handler(core_schema)
        in_short = cls.may_be_text and handler.mode == "validation"
        return {"anyOf": [{"type": "string"}, section]} if in_short else section


class WithSettings(Section):
    """A part whose service takes more settings than the file has words for."""

    elsewhere: ClassVar[Mapping[str, str]] = {}  # settings that the file has its own words for, and these

    @field_validator("settings", check_fields=False)
    @classmethod
    def _said_once(cls, settings: Settings) -> Settings:
        words = {"address": "nothing: the mesh decides", "otlp_endpoint": "tracing", "trace_ratio": "tracing"}
        for name in settings:
            if instead := (words | dict(cls.elsewhere)).get(name.lower()):
                raise ValueError(f"{name}: belongs into {instead}")
        if named := credential_in(settings):
            variable = f"HEDGEROW_<SERVICE>_{named.replace('.', '__').upper()}"
            raise ValueError(f"{named}: a credential must not be in the file; set the variable {variable}")
        return settings


class Prices(Section):
    """US dollars for a million tokens."""

    input: Dollars = Field(0, description="For prompts.")
    output: Dollars = Field(0, description="For answers.")
    cached_input: Dollars | None = Field(None, description="For prompts from the provider's cache. Default: `input`.")
    cache_write: Dollars | None = Field(
        None, description="For prompts written to the provider's cache. Default: `input`."
    )


class Model(WithSettings):
    """A model: `folder`, `catalog`, `hub` or `url` says where it is. In short, one of the four alone."""

    may_be_text = True
    elsewhere: ClassVar[Mapping[str, str]] = {
        "engine": "engine",
        "model_name": "the model's name",
        **dict.fromkeys(ENGINES, "options"),
    }

    folder: ExistingFolder | None = Field(None, description="Folder of a model for vLLM.")
    catalog: LanguageModel | None = Field(None, description="Name in the catalogue (`hedgerow models list`), for vLLM.")
    hub: Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)?$")] | None = Field(
        None, description="Name on the hub, for vLLM."
    )
    url: HttpUrls = Field(
        [],
        validate_default=True,
        description="API of a provider or server, up to and including `/v1`. A list: replicas of one model.",
    )
    model: str = Field("", description="With `url`: the provider's name. Default: the name here.")
    key_env: VariableName | None = Field(None, description="With `url`: environment variable with the API key.")
    key_file: KeyFile | None = Field(None, description="With `url`: file with the API key alone.")
    engine: Annotated[str, Field(pattern=NAME_PATTERN)] = Field(
        "",
        description="`vllm`, `openai`, `anthropic`, or your own as `package.module:function`. Default: `openai` for a "
        "URL, else `vllm`.",
    )
    serves: Serves = Field((CHAT,), description="With `url`: `chat`, or some of `embeddings`, `rerank`, `moderations`.")
    tier: Literal["fast", "balanced", "quality"] = Field(
        "balanced", description="Class; a request for a tier gets the fastest model of it or of a better one."
    )
    prices: Prices = Field(Prices(), description="Prices. Default: the provider's public ones.")
    context_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Most tokens of prompt and answer. Default: by engine or server."
    )
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Most tokens of an answer. Default: the model's own; 512 with the profile `latency`."
    )
    sees: bool | None = Field(
        None,
        description="Whether it receives pictures; other models receive labels. Default: by the model's family, such "
        "as gpt-5, claude, gemini, qwen-vl.",
    )
    expected_ttft_ms: Milliseconds | None = Field(
        None, description="Time to the first token before there are measurements."
    )
    expected_total_ms: Milliseconds | None = Field(None, description="The same of the last token.")
    replicas: int = Field(
        1, ge=1, le=MOST_REPLICAS, description="Processes that serve it; calls are hedged between them."
    )
    options: Settings = Field(
        {}, description="Settings of the engine (settings.md); for vLLM every field of `AsyncEngineArgs`."
    )
    settings: Settings = Field({}, description=f"{SERVICE_SETTINGS} `grace_ms`.")
    memory_gib: Annotated[float, Field(ge=0.01, le=4_096)] | None = Field(
        None, description="In containers: most memory in GiB. Default: 4 for vLLM, 0.5 for a provider."
    )
    gpus: int = Field(0, ge=0, le=16, description="In containers: NVIDIA GPUs.")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, str):
            return given
        if is_url(given):
            return {"url": given}
        return {"folder" if is_folder(given, info) else "catalog" if is_catalogued(given) else "hub": given}

    @field_validator("url")
    @classmethod
    def _one_place(cls, url: list[str], info: ValidationInfo) -> list[str]:
        places = ("folder", "catalog", "hub")
        given = [name for name in places if info.data.get(name)] + ["url"] * bool(url)
        if set(places) <= info.data.keys() and len(given) != 1:
            raise ValueError(f"one of folder, catalog, hub and url is needed, has {' and '.join(given) or 'none'}")
        if len(set(url)) < len(url):
            raise ValueError("each URL once")
        return url

    @field_validator("key_env", "key_file", "model")
    @classmethod
    def _of_a_provider(cls, value: Any, info: ValidationInfo) -> Any:
        if value and "url" in info.data and not info.data["url"]:
            raise ValueError("only with a url")
        if info.field_name == "key_file" and value and info.data.get("key_env"):
            raise ValueError("not together with key_env: one key")
        return value

    @field_validator("engine")
    @classmethod
    def _fits(cls, engine: str, info: ValidationInfo) -> str:
        if engine in PROVIDER_ENGINES and "url" in info.data and not info.data["url"]:
            raise ValueError(f"{engine} only with a url")
        if engine == "vllm" and info.data.get("url"):
            raise ValueError("vllm loads a folder or what is on the hub; a vLLM server with a url is `openai`")
        return engine

    @field_validator("serves")
    @classmethod
    def _one_kind(cls, serves: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if serves == (CHAT,):
            return serves
        if not serves or CHAT in serves or len(set(serves)) < len(serves):
            raise ValueError("chat alone, or some of embeddings, rerank and moderations, each once")
        if "url" in info.data and not info.data["url"]:
            raise ValueError(f"{serves[0]} only with a url")
        if info.data.get("engine") not in ("", "openai", None):
            raise ValueError(f"{serves[0]} only with the engine openai")
        return serves

    @field_validator("options")
    @classmethod
    def _not_said_twice(cls, options: Settings) -> Settings:
        for name in options:
            if name in ("model", "base_url", "api_key"):
                instead = {"model": "folder, hub or model", "base_url": "url", "api_key": "key_env or key_file"}[name]
                raise ValueError(f"{name}: belongs into {instead}")
        if named := credential_in(options).rpartition(".")[2]:
            raise ValueError(f"{named}: a credential must not be in the file; see key_env and key_file")
        return options

    @property
    def local(self) -> Path | None:
        """The folder that vLLM loads; None for the hub and a URL. A model of the catalogue may not be pulled yet."""
        return home(self.catalog) if self.catalog else self.folder

    @property
    def methods(self) -> tuple[str, ...]:
        """The APIs that it serves in place of chat; empty: it chats."""
        return () if self.serves == (CHAT,) else self.serves

    def takes_pictures(self, name: str) -> bool:
        """Whether it receives pictures, of a model called `name`: as the file says, by its features, or its family."""
        if self.sees is not None:
            return self.sees
        if isinstance(features := self.options.get("features"), list):
            return "images" in features
        own = self.hub or (self.model or name if self.url else "")
        return not self.methods and self.engine_used in ENGINES and provider_models.sees(own)

    @property
    def engine_used(self) -> str:
        """The engine, said or not."""
        return self.engine or ("openai" if self.url else "vllm")

    @property
    def options_of(self) -> str:
        """The engine that the options belong to; a custom engine gets all of them."""
        return self.engine if self.engine in ENGINES else "openai" if self.url else "vllm"
