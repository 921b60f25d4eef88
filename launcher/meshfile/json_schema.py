"""The JSON Schema of a mesh file, for editors. It is made of the classes that read the file, and shipped as a file."""

from __future__ import annotations

import json
from pathlib import Path

from launcher.meshfile.schema import MeshFile

SHIPPED = Path(__file__).with_name("mesh.schema.json")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def text() -> str:
    """The schema's text; `make docs` writes it."""
    whole = {"$schema": _DIALECT, **MeshFile.model_json_schema(), "title": "A mesh file of hedgerow"}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
