"""The first mesh file: `hedgerow init`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, NamedTuple

import yaml

from launcher.meshfile.fields import is_url

CALLERS_KEY = "HEDGEROW_API_KEY"  # where `hedgerow ask` takes it from


class Provider(NamedTuple):
    """A provider's URL and the usual variable of its key."""

    url: str
    key_env: str = ""
    engine: str = ""
    options: str = ""


PROVIDERS = {
    "openai": Provider(
        "https://api.openai.com/v1", "OPENAI_API_KEY", options="{max_tokens_field: max_completion_tokens}"
    ),
    "anthropic": Provider("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", "anthropic"),
    "gemini": Provider("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", options="{dialect: openrouter}"),
    "ollama": Provider("http://127.0.0.1:11434/v1"),
    "vllm": Provider("http://127.0.0.1:8000/v1"),
}


@dataclass(frozen=True)
class InitAnswers:
    """The answers of `hedgerow init`: a model (see `place_of`), its key's variable, the callers, and the stored answers
    that they get: none, to the same question, or also to other wordings."""

    model: str
    key_env: str = ""
    callers: Literal["local", "keys"] = "local"
    stored: Literal["no", "exact", "semantic"] = "no"

    @property
    def needed(self) -> list[str]:
        """The variables that `hedgerow up` will need."""
        return [name for name in (self.key_env, CALLERS_KEY if self.callers == "keys" else "") if name]


def place_of(model: str) -> dict[str, str]:
    """The keys of a model in the file: of `openai:gpt-5-mini`, `small=http://host:8000/v1` (with `#ITS_NAME` where the
    server has another name for it), `http://host:8000/v1 Qwen/Qwen3-8B`, a folder that looks like one
    (`./models/mine`), or a name on the hub. Raises ValueError."""
    provider, colon, name = model.partition(":")
    if colon and provider in PROVIDERS:
        found = PROVIDERS[provider]
        if not name:
            raise ValueError(f"a model of the provider is needed, such as {provider}:NAME")
        return {"url": found.url, **({"engine": found.engine} if found.engine else {}), "model": name}
    if named := name_before_url(model):
        url, _, own = model.removeprefix(f"{named}=").partition("#")
        model = f"{url} {own or named}"
    if is_url(model):
        url, _, name = model.partition(" ")
        if not name.strip():
            raise ValueError(f"the model's name is needed before the URL: NAME={url}")
        return {"url": url, "model": name.strip()}
    if model.startswith((".", "/", "~")) and " " not in model:
        return {"folder": model}
    if not model or " " in model or "://" in model or "=" in model:
        raise ValueError(
            f"a folder, a name on the hub, PROVIDER:NAME, or NAME=URL is needed (small=http://host:8000/v1), "
            f"got {model}"
        )
    return {"hub": model}


def name_before_url(model: str) -> str:
    """NAME of `NAME=URL`, else empty."""
    name, _, url = model.partition("=")
    return name if is_url(url) and not is_url(name) else ""


def usual_key(model: str) -> str:
    """The usual variable of a provider's key; empty: none."""
    provider = PROVIDERS.get(model.partition(":")[0])
    return provider.key_env if provider else ""


def write(answers: InitAnswers) -> str:
    """The file's text, with comments on further keys. Raises ValueError for an invalid model."""
    place = place_of(answers.model)
    name = name_before_url(answers.model) or place.get("model") or PurePath(place.get("folder") or place["hub"]).name
    said = [f"    {key}: {_scalar(value)}" for key, value in place.items()]
    if answers.key_env:
        said.append(f"    key_env: {_scalar(answers.key_env)}  # the variable that holds it; never the key itself")
    provider = PROVIDERS.get(answers.model.partition(":")[0])
    options = f"options: {provider.options}" if provider and provider.options else "# options: {}          "
    tenants = _TENANTS if answers.callers == "keys" else _NO_TENANTS
    return _TEXT.format(
        name=_scalar(name), place="\n".join(said), options=options, tenants=tenants, cache=_CACHE[answers.stored]
    )


def _scalar(text: str) -> str:
    """A scalar for a YAML file, in quotes if it would otherwise have another type."""
    try:
        plain = yaml.safe_load(f"a: {text}") == {"a": text}
    except (yaml.YAMLError, ValueError):  # ValueError: a date that is none
        plain = False
    return text if plain else json.dumps(text)


_TENANTS = f"""\
# Callers: those with a key. The first key is taken from the environment too.
tenants:
  me:
    key_env: {CALLERS_KEY}
    # requests_per_s: 10
    # tokens_per_minute: 100000
    # Another key, which expires: hedgerow keys create me --expires 30d
"""
_NO_TENANTS = f"""\
# Callers: every process of this machine. To give keys:
# tenants:
#   me:
#     key_env: {CALLERS_KEY}
#     requests_per_s: 10
"""
_SAME = "# the same question again gets the stored answer; {semantic: true}: other wordings too"
_CACHE = {
    "no": f"# cache: {{exact: true}}       {_SAME}",
    "exact": f"cache: {{exact: true}}         {_SAME}",
    "semantic": "cache: {semantic: true}      # a question gets the stored answer to the same, also in other words",
}
_TEXT = """\
# A mesh of my own: hedgerow up mesh.yaml
# All that may stand here is in docs/mesh-file.md. Save it while the mesh runs, and the mesh follows.
models:
  {name}:
{place}
    tier: balanced           # fast, balanced or quality: requests may ask for one, and the router chooses by it
    # max_tokens: 1024       # the most of an answer, also where a request does not say; without it, the model's own
    # context_tokens: 32768  # the most of prompt and answer together
    # prices: {{input: 0.15, output: 0.60}}   # US dollars for a million tokens
    # replicas: 2            # processes; of a server by URL, more servers: url: [http://one/v1, http://two/v1]
    {options}  # more of its engine: docs/settings.md
  # Another model stands in where this one is late or broken:
  # local: ./models/mine

{tenants}
gateway:
  address: 127.0.0.1:50050   # gRPC, for the SDK and `hedgerow ask`
  http: 127.0.0.1:50080      # for OpenAI's and Anthropic's clients: base_url=http://127.0.0.1:50080/v1
  # workers: 2

# profile: latency           # stored answers, shorter prompts, 30 s (docs/mesh-file.md); without it nothing is changed
{cache}
# vision: ./models/pictures  # what looks at pictures
# audio: large-v3-turbo      # what hears
# tracing: http://127.0.0.1:4317
"""
