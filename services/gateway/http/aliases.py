"""Paths by which clients of other services find routes of this gateway: Azure OpenAI's, and Cohere's second rerank.

Sources: https://learn.microsoft.com/azure/ai-services/openai/reference, and the packages `openai` (`AzureOpenAI`) and
`cohere` (`ClientV2`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODEL = "named_model"  # in a request's scope: the model that its path names, whatever its body names
_AZURES = "/openai/"
_DEPLOYMENTS = "/openai/deployments/"
_OF_DEPLOYMENTS = ("/chat/completions", "/completions", "/embeddings", "/audio/transcriptions", "/audio/translations")
_SAME = {"/v2/rerank": "/v1/rerank", "/rerank": "/v1/rerank"}


def by_own_path(scope: Mapping[str, Any]) -> dict[str, Any]:
    """A request's scope with the path of a route of this gateway, and with the model that an Azure deployment is; other
    paths stay."""
    path: str = scope["path"]
    if path.startswith(_DEPLOYMENTS):
        method = next((each for each in _OF_DEPLOYMENTS if path.endswith(each)), "")
        if model := path[len(_DEPLOYMENTS) : len(path) - len(method)] if method else "":
            return {**scope, "path": f"/v1{method}", MODEL: model}
    elif path.startswith(_AZURES):  # with or without its version
        return {**scope, "path": f"/v1/{path.removeprefix(_AZURES).removeprefix('v1/')}"}
    return {**scope, "path": _SAME.get(path, path)}
