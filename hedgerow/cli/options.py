"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class TierName(StrEnum):
    """The classes of model."""

    FAST = "fast"
    BALANCED = "balanced"
    QUALITY = "quality"


Gateway = Annotated[str, typer.Option(envvar="HEDGEROW_TARGET", metavar="HOST:PORT", help="The gateway to ask.")]
ApiKey = Annotated[
    str | None, typer.Option(envvar="HEDGEROW_API_KEY", help="Who asks, where the gateway wants to know.")
]
Tier = Annotated[TierName | None, typer.Option(help="The class of model. Without it, the router chooses.")]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="One model by name; overrules the router.")]
BudgetMs = Annotated[int | None, typer.Option(metavar="N", help="The whole time the answer may take, in milliseconds.")]
System = Annotated[str | None, typer.Option(metavar="TEXT", help="Instructions for the model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout, also on errors.")]
StateDir = Annotated[Path, typer.Option(metavar="DIR", help="Where logs, the cache's database and mesh.json are kept.")]
