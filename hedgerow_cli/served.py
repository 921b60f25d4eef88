"""`hedgerow models served`: the models of a running mesh."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hedgerow_cli import options, running
from hedgerow_cli.model_load import ModelLoad, loads

_TIMEOUT_S = 5
_MOST_BYTES = 16 * 1024 * 1024
_DEFAULT = "http://127.0.0.1:50080"


def served(
    url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar="HEDGEROW_TARGET_HTTP",
            help=f"Where the gateway serves HTTP. Without it: of the mesh that runs from this folder, else {_DEFAULT}.",
        ),
    ] = "",
    state_dir: options.StateDir = running.FOLDER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List the models that a running mesh serves, with tier, context and price.

    A request may name one of them, or a tier. A model that does not chat has the APIs that it serves in place of a
    tier. If requests to a model's provider fail, the problem stands below it: the provider's error, for the mesh that
    runs from this folder; for other meshes only that calls fail, if the gateway shows its metrics. "hedgerow models
    list" lists models that can be pulled.

    \b
    Examples:
      hedgerow models served
      hedgerow models served --url http://127.0.0.1:8080 --json | jq -r '.models[].name'
    """
    import json

    where = (url or http_of(state_dir)).rstrip("/").removesuffix("/v1")
    listed = _listed(where, api_key, as_json)
    models = [_row(each) for each in listed if "hedgerow" in each or "max_model_len" in each]
    _add_problems(models, {} if url else _problems(state_dir), loads(where, api_key))
    others = [each["id"] for each in listed if each["id"] not in {model["name"] for model in models}]
    if as_json:
        print(json.dumps({"url": where, "models": models, "others": others}))
        return
    from hedgerow_cli.terminal import harmless

    for model in models:
        context = f"{model['context_tokens']:,} tokens" if model["context_tokens"] else "context not known"
        kind = ", ".join(model.get("serves", ())) or model["tier"] or ""
        print(harmless(f"{model['name']:32} {kind:10} {context:>18}  {_price(model)}".rstrip()))
        if "problem" in model:
            print(harmless(f"  {model['problem']}"))
    if others:
        print(harmless(f"also by these names: {', '.join(others)}"))


def http_of(folder: Path) -> str:
    """Where the mesh that runs from a folder serves HTTP."""
    listed = [service["http"] for service in running.services(folder) if service.get("http")]
    return f"http://{here(listed[-1])}" if listed else _DEFAULT


def here(address: str) -> str:
    """Where a server that listens on `address` is called from its own machine."""
    return address.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]")


def _add_problems(models: list[dict[str, Any]], known: dict[str, str], busy: dict[str, ModelLoad]) -> None:
    for model in models:
        name = model["name"]
        if problem := known.get(name) or (busy[name].problem if name in busy else ""):
            model["problem"] = problem


def _problems(folder: Path) -> dict[str, str]:
    """Of models that cannot be reached, or whose provider fails, as their own services say; the first of replicas."""
    import asyncio

    addresses = [s["address"] for s in running.services(folder) if s["name"].partition("-")[0] == "llm"]
    if not addresses:
        return {}
    from launcher.outages import model_state

    async def ask() -> list[Any]:
        return await asyncio.gather(*(model_state(address) for address in addresses))

    states = [state for state in asyncio.run(ask()) if state and state.problem]
    return {state.name: f"{state.url}: {state.reason}" for state in reversed(states)}


def _row(listed: dict[str, Any]) -> dict[str, Any]:
    known = listed.get("hedgerow") or {}
    prices = {name: value for name, value in known.items() if name.endswith("_usd_per_mtok")}
    return {
        "name": listed["id"],
        "tier": known.get("tier"),
        "context_tokens": listed.get("max_model_len"),
        **prices,
        **({"serves": known["serves"]} if "serves" in known else {}),
    }


def _price(model: dict[str, Any]) -> str:
    asked, answered = model.get("prompt_usd_per_mtok"), model.get("completion_usd_per_mtok")
    if answered is None:  # it writes none
        return f"${asked:g} for a million tokens" if asked else ""
    return f"${asked:g} and ${answered:g} for a million tokens" if asked or answered else ""


def _listed(where: str, api_key: str | None, as_json: bool) -> list[dict[str, Any]]:
    import json
    from urllib.error import HTTPError, URLError

    from hedgerow_cli.failures import fail
    from hedgerow_cli.scrape import get

    if not where.startswith(("http://", "https://")):
        raise typer.BadParameter(f"http://host:port or https://host is needed, got {where}", param_hint="--url")
    try:
        with get(f"{where}/v1/models", api_key, _TIMEOUT_S) as answer:
            return [{**each, "id": str(each["id"])} for each in json.loads(answer.read(_MOST_BYTES))["data"]]
    except HTTPError as error:
        message = f"{where}/v1/models answers {error.code}: {_message(error.read(_MOST_BYTES))}"
        fail(message, "REFUSED", as_json, "UNAVAILABLE")
    except (URLError, TimeoutError) as error:
        why = getattr(error, "reason", error)
        message = f'no gateway serves HTTP at {where} ({why}); start one with "hedgerow up"'
        fail(message, "NO_GATEWAY", as_json, "UNAVAILABLE")
    except (ValueError, KeyError, TypeError, RecursionError):
        fail(f"{where}/v1/models is no list of models", "NO_GATEWAY", as_json, "UNAVAILABLE")


def _message(body: bytes) -> str:
    import json

    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no message"
