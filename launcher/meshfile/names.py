"""Names of processes, which are also names of hosts, files and Kubernetes objects."""

from __future__ import annotations

import re

_LONGEST = 40


def service_name(model: str) -> str:
    """`llm-qwen-qwen3-8b` of `Qwen/Qwen3-8B`."""
    return f"llm-{re.sub('[^a-z0-9]+', '-', model.lower())[:_LONGEST].strip('-')}"


def processes_of(model: str, urls: int, replicas: int) -> list[str]:
    """The names of the processes of a model."""
    services = process_names(service_name(model), urls)
    return [name for service in services for name in process_names(service, replicas)]


def process_names(service: str, replicas: int) -> list[str]:
    """`llm-fast-1`, `llm-fast-2`; or `llm-fast`, which is alone."""
    return [f"{service}-{number}" for number in range(1, replicas + 1)] if replicas > 1 else [service]
