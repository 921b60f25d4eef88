"""The mesh of `hedgerow up` without a file: the models that `--model` names, or those of the keys in the environment.

It is written as a mesh file, so that everything that is checked of one is checked of it, and it can be kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request

import yaml

from hedgerow._pages import ask
from launcher.mesh import HTTP_OFFSET
from launcher.meshfile.fields import LOOPBACK, is_loopback, is_url
from launcher.meshfile.models import KINDS
from launcher.meshfile.template import CALLERS_KEY, PROVIDERS, Provider, name_before_url

AZURE, AZURE_KEY = "azure", "AZURE_OPENAI_API_KEY"
_AZURE_ENDPOINT, _AZURE_DEPLOYMENT = "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_DEPLOYMENT"
_AZURE_HOSTS = ".openai.azure.com"
# The models of a key without `--model`, with their tiers.
USUAL: Mapping[str, Mapping[str, str]] = {
    "openai": {"gpt-5-mini": "fast", "gpt-5": "quality"},
    "anthropic": {"claude-haiku-4-5": "fast", "claude-sonnet-4-5": "quality"},
}
# Where a provider's own clients look for another address than the usual one; Anthropic's have no /v1 there.
_BASE_URLS = {"openai": ("OPENAI_BASE_URL", ""), "anthropic": ("ANTHROPIC_BASE_URL", "/v1")}
NOTHING = f"""no model to serve. Name one in one of three ways:
  a key in the environment   OPENAI_API_KEY, or ANTHROPIC_API_KEY; for Azure {AZURE_KEY},
                             {_AZURE_ENDPOINT} and {_AZURE_DEPLOYMENT}
  a URL or a provider        hedgerow up --model NAME=http://127.0.0.1:8000/v1 --model openai:gpt-5-mini
  a mesh file                hedgerow init, then hedgerow up mesh.yaml"""


@dataclass(frozen=True)
class Given:
    """The options of the command line. `models`: `NAME=URL`, `PROVIDER:MODEL` or `NAME=PROVIDER:MODEL` each, and behind
    it `,serves=API` for a model that does not chat; `key_env`: the variable with the key of the URLs that are no known
    provider's."""

    models: Sequence[str] = ()
    key_env: str = ""
    host: str = "127.0.0.1"
    base_port: int = 50050
    otlp_endpoint: str = ""

    @property
    def address(self) -> str:
        """The gateway's address of gRPC."""
        return f"{self.host}:{self.base_port}"

    @property
    def http(self) -> str:
        """The gateway's address of HTTP."""
        return f"{self.host}:{self.base_port + HTTP_OFFSET}"


def sections(given: Given, environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The models, as sections of a mesh file. Several URLs of one name are replicas of one model. Empty where neither
    the command line nor the environment names one. Raises ValueError."""
    found: dict[str, dict[str, Any]] = {}
    for each in given.models or _of_keys(environment):
        place, serves = _serves(each)
        name, section = _section(place, given.key_env, environment)
        if serves:
            section["serves"] = serves
        if name in found and {**found[name], "url": None} != {**section, "url": None}:
            raise ValueError(f"--model {name}: one name for two models; each model needs a name of its own")
        section["url"] = [*found.get(name, {}).get("url", []), *section["url"]]
        found[name] = section
    for section in found.values():
        for url in section["url"]:
            if urlsplit(url).netloc in {f"{host}:{given.base_port + HTTP_OFFSET}" for host in (*LOOPBACK, given.host)}:
                raise ValueError(f"{url}: this is the address of the mesh itself; see OPENAI_BASE_URL and --model")
    return found


def _of_keys(environment: Mapping[str, str]) -> list[str]:
    """`PROVIDER:MODEL` of each model that the keys in the environment stand for."""
    keys = [name for name in USUAL if _is_set(environment, PROVIDERS[name].key_env)]
    found = [f"{name}:{model}" for name in keys for model in USUAL[name]]
    if all(_is_set(environment, name) for name in (AZURE_KEY, _AZURE_ENDPOINT, _AZURE_DEPLOYMENT)):
        found += [f"{AZURE}:{name}" for name in environment[_AZURE_DEPLOYMENT].replace(",", " ").split()]
    return found


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return bool(environment.get(name, "").strip())


def _serves(given: str) -> tuple[str, list[str]]:
    """(what stands before `,serves=`, the APIs behind it)."""
    place, comma, option = given.partition(",")
    if not comma:
        return place, []
    word, _, named = option.partition("=")
    kinds = [each.strip() for each in named.split(",")]
    if word.strip() != "serves" or not {*kinds} <= {*KINDS}:
        raise ValueError(f"--model {given}: serves= and one or several of {', '.join(KINDS)} may follow the comma")
    return place, kinds


def _section(given: str, key_env: str, environment: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """(name, what a mesh file says of it)."""
    name, equals, place = given.partition("=")
    if not equals or is_url(name):
        name, place = "", given
    provider, colon, model = place.partition(":")
    if is_url(place):
        url, _, model = place.partition("#")
        if not name:
            raise ValueError(f"--model {given}: a name is needed before the URL: NAME={given}")
        section = _at(url, model or name, provider := _provider_at(url), key_env)
        return name, section if model or provider else {**section, "ask": True}
    if not colon or not model or provider not in (*PROVIDERS, AZURE):
        known = ", ".join([*PROVIDERS, AZURE])
        raise ValueError(f"--model {given}: NAME=URL or PROVIDER:MODEL is needed; providers: {known}")
    section = _at(_url(provider, environment), model, provider, key_env)
    if tier := USUAL.get(provider, {}).get(model):
        section["tier"] = tier
    return name or model, section


def _at(url: str, model: str, provider: str, key_env: str) -> dict[str, Any]:
    """A model at a URL, which gets callers' pictures unchanged."""
    section: dict[str, Any] = {"url": [url], "model": model, "sees": True}
    if provider == AZURE:
        return {**section, "key_env": AZURE_KEY, "options": {"dialect": "azure"}}
    known = PROVIDERS.get(provider, Provider(""))
    if known.engine:
        section["engine"] = known.engine
    if key := known.key_env or key_env:
        section["key_env"] = key
    if known.options:
        section["options"] = yaml.safe_load(known.options)
    return section


def _url(provider: str, environment: Mapping[str, str]) -> str:
    if provider == AZURE:
        if not _is_set(environment, _AZURE_ENDPOINT):
            raise ValueError(f"--model azure: the environment variable {_AZURE_ENDPOINT} is not set")
        endpoint = environment[_AZURE_ENDPOINT].strip().rstrip("/").removesuffix("/openai/v1")
        return f"{endpoint}/openai/v1"
    variable, path = _BASE_URLS.get(provider, ("", ""))
    if variable and _is_set(environment, variable):
        url = environment[variable].strip().rstrip("/")
        return url if url.endswith(path) else f"{url}{path}"
    return PROVIDERS[provider].url


def _provider_at(url: str) -> str:
    """The name of the provider whose API is at a URL; empty for a server that is no provider's."""
    host = urlsplit(url).hostname or ""
    if host.endswith(_AZURE_HOSTS):
        return AZURE
    public = {name: urlsplit(known.url).hostname for name, known in PROVIDERS.items() if known.key_env}
    return next((name for name, own in public.items() if own == host), "")


async def named_by_servers(
    models: Mapping[str, dict[str, Any]], environment: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """The models; one at a URL gets the server's name of its only model."""
    asked = {name: each for name, each in models.items() if each.pop("ask", False)}
    keys = [environment.get(each.get("key_env", ""), "").strip() for each in asked.values()]
    found = await asyncio.gather(*map(with_its_name, asked.values(), keys))
    return {**models, **dict(zip(asked, found, strict=True))}


async def named_by_server(model: str, key: str) -> str:
    """`NAME=URL` with the name that the server has for its model, where it lists one alone; others as they are."""
    name = name_before_url(model)
    if not name or "#" in model:
        return model
    found = await with_its_name({"url": [model.removeprefix(f"{name}=")], "model": name}, key)
    return f"{model}#{found['model']}"


def write(given: Given, models: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """The text of the mesh file. Raises ValueError if callers from other machines would need no key."""
    content: dict[str, Any] = {"models": dict(models)}
    gateway: dict[str, Any] = {"address": given.address, "http": given.http}
    if _is_set(environment, CALLERS_KEY):
        content["tenants"] = {"me": {"key_env": CALLERS_KEY}}
    if not is_loopback(given.address):
        gateway["plaintext"] = True
        if "tenants" not in content:
            raise ValueError(f"--host {given.host}: callers from elsewhere need a key; set {CALLERS_KEY} to one")
    content |= {"gateway": gateway, "cache": False}
    if given.otlp_endpoint:
        content["tracing"] = given.otlp_endpoint
    return f"# Written by `hedgerow up`. Keep a copy, and start it with: hedgerow up COPY\n{_yaml(content)}"


def _yaml(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


_WAIT_S = 1.5
_LARGEST_BYTES = 1024 * 1024


async def with_its_name(section: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The section of a model, by the name that the server at its first URL has for it: the one that it lists, where it
    lists one alone. As it is where the server does not answer in 1.5 s."""
    listed = await asyncio.to_thread(_listed, section["url"][0], key)
    return {**section, "model": listed[0]} if len(listed) == 1 else dict(section)


def _listed(url: str, key: str) -> list[str]:
    request = Request(f"{url.rstrip('/')}/models", headers={"authorization": f"Bearer {key}"} if key else {})
    try:
        with ask(request, _WAIT_S) as answer:
            rows = json.loads(answer.read(_LARGEST_BYTES))["data"]
        return [str(row["id"]) for row in rows]
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):  # also a port of another protocol
        return []
