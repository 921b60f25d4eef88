"""Writes the Dockerfiles of services that add context: `make docs` runs `python -m scripts.images`.

They need Python alone, as the router does, so each is the router's with another name and port.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hedgerow.identities import CONTEXT_SERVICES, SERVICES

FOLDER = Path(__file__).parents[1] / "deploy/docker"
_LIKE = SERVICES["router"]


def main() -> None:
    for name, text in dockerfiles().items():
        (FOLDER / name).write_text(text)
    print(f"deploy/docker: {len(CONTEXT_SERVICES)} Dockerfiles")


def dockerfiles() -> Mapping[str, str]:
    """Each file's text by its name."""
    _, _, text = (FOLDER / f"{_LIKE.name}.Dockerfile").read_text().partition("\n")
    return {
        f"{name}.Dockerfile": f"# The service {name}, which adds context.\n{_named(text, name)}"
        for name in CONTEXT_SERVICES
    }


def _named(text: str, name: str) -> str:
    pairs = {_LIKE.name: name, _LIKE.name.upper(): name.upper(), str(_LIKE.port): str(SERVICES[name].port)}
    for old, new in pairs.items():
        text = text.replace(old, new)
    return text


if __name__ == "__main__":
    main()
