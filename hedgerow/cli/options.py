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


class PolicyName(StrEnum):
    """When a word that is being spoken counts as sure."""

    WINDOWS = "windows"
    LOCAL_AGREEMENT = "local-agreement"


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
Images = Annotated[
    list[Path] | None,
    typer.Option("--image", metavar="FILE", help="A picture that belongs to the question; may be given several times."),
]
Audio = Annotated[Path | None, typer.Option(metavar="FILE", help="A recording that is, or belongs to, the question.")]
PauseMs = Annotated[
    int | None,
    typer.Option(metavar="N", help="With --stream: the silence that ends what is said, 100 to 5000 milliseconds."),
]
VisionService = Annotated[
    str, typer.Option("--vision", envvar="HEDGEROW_TARGET_VISION", metavar="HOST:PORT", help="The vision service.")
]
AudioService = Annotated[
    str, typer.Option(envvar="HEDGEROW_TARGET_AUDIO", metavar="HOST:PORT", help="The audio service.")
]
JsonLines = Annotated[
    bool,
    typer.Option("--json", help="Print exactly one JSON object on stdout, also on errors; with --stream, one a line."),
]
