"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from hedgerow.cli import running

if TYPE_CHECKING:
    from hedgerow import Tls


class TierName(StrEnum):
    """The classes of model."""

    FAST = "fast"
    BALANCED = "balanced"
    QUALITY = "quality"


class DietName(StrEnum):
    """Whose messages are put on a diet."""

    OFF = "off"
    SYSTEM = "system"
    ALL = "all"


class TruncationName(StrEnum):
    """What becomes of a conversation that is longer than the model's context."""

    AUTO = "auto"
    DISABLED = "disabled"


class VerifierName(StrEnum):
    """What a fast model's answer must pass."""

    RULES = "rules"
    FORM = "form"
    LOGPROBS = "logprobs"
    JUDGE = "judge"


class QuestionKindName(StrEnum):
    """What keeps a question from the cache."""

    SAMPLED = "sampled"
    TIME_BOUND = "time_bound"
    PERSONAL = "personal"


class CacheName(StrEnum):
    """Which stored answers are wanted."""

    AUTO = "auto"
    USE = "use"
    EXACT = "exact"
    BYPASS = "bypass"


class PriorityName(StrEnum):
    """Which requests are shed last."""

    NORMAL = "normal"
    REALTIME = "realtime"


class PolicyName(StrEnum):
    """When a word that is being spoken counts as sure."""

    WINDOWS = "windows"
    LOCAL_AGREEMENT = "local-agreement"


_RUNNING = "Without it: of the mesh that runs from this folder, or else"
Gateway = Annotated[
    str,
    typer.Option(
        envvar="HEDGEROW_TARGET",
        metavar="HOST:PORT",
        help=f"The gateway to ask. {_RUNNING} as below.",
        callback=running.address_of("gateway"),
    ),
]
ApiKey = Annotated[
    str | None, typer.Option(envvar="HEDGEROW_API_KEY", help="Who asks, where the gateway wants to know.")
]
UseTls = Annotated[
    bool, typer.Option("--tls", envvar="HEDGEROW_TLS", help="Speak TLS, with an authority that everybody knows.")
]
CaFile = Annotated[
    Path | None,
    typer.Option(envvar="HEDGEROW_TLS_CA", metavar="FILE", help="Speak TLS, with the authority in this PEM file."),
]
TlsDir = Annotated[
    Path | None,
    typer.Option(
        envvar="HEDGEROW_TLS_DIR",
        metavar="DIR",
        help="Prove who asks: a folder with tls.crt, tls.key and ca.crt, as hedgerow certs makes them.",
    ),
]
PlaintextKey = Annotated[
    bool,
    typer.Option(
        "--plaintext-key",
        envvar="HEDGEROW_PLAINTEXT_KEY",
        help="Send the API key without TLS to another machine: everybody on the way can read it.",
    ),
]
Tier = Annotated[TierName | None, typer.Option(help="The class of model. Without it, the router chooses.")]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="One model by name; overrules the router.")]
BudgetMs = Annotated[int | None, typer.Option(metavar="N", help="The whole time the answer may take, in milliseconds.")]
System = Annotated[str | None, typer.Option(metavar="TEXT", help="Instructions for the model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout, also on errors.")]
StateDir = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Where a mesh keeps logs, the cache's database and mesh.json. Without it: of the mesh that runs from this "
        "folder.",
        callback=running.the_folder,
    ),
]
OwnStateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where logs, the cache's database and mesh.json are kept. Without it: .hedgerow for the demo, "
        ".hedgerow/meshes/NAME beside NAME.yaml, and .hedgerow/meshes/NAME.yml beside NAME.yml.",
    ),
]
Cache = Annotated[
    CacheName,
    typer.Option(
        help="Which stored answers are wanted: use takes those to other wordings too, exact none but this question's, "
        "bypass neither looks the answer up nor stores it. auto: as the tenant's settings say."
    ),
]
Priority = Annotated[PriorityName, typer.Option(help="realtime: be among the last to be shed under load.")]
MinSimilarity = Annotated[
    float | None,
    typer.Option(metavar="S", help="Least similarity at which a stored answer to a like question will do, 0.5 to 1."),
]
CacheAllow = Annotated[
    list[QuestionKindName] | None,
    typer.Option(
        "--cache-allow", help="Look the answer up and store it although the question is of this kind. May be repeated."
    ),
]
CacheCategory = Annotated[
    str | None, typer.Option(metavar="NAME", help="The category of the question, of those that the gateway knows.")
]
EndUser = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The end user whom the answer is for, where each has stored answers of its own."),
]
Cascade = Annotated[
    list[VerifierName] | None,
    typer.Option("--cascade", help="Ask a fast model first, and a better one where its answer fails this check."),
]
AtOnce = Annotated[
    bool, typer.Option("--cascade-at-once", help="With --cascade: show the fast model's answer before it has passed.")
]
Repair = Annotated[
    bool, typer.Option("--repair", help="With --json-schema: ask the model once more where its answer does not match.")
]
DietOf = Annotated[
    DietName | None,
    typer.Option(
        "--diet", help="Whose messages are shortened where they say nothing. Without it, the gateway chooses."
    ),
]
SystemPrompt = Annotated[
    str | None, typer.Option(metavar="NAME", help="A system prompt that the gateway keeps, by its name.")
]
TruncationOf = Annotated[
    TruncationName | None,
    typer.Option(
        "--truncation",
        help="What becomes of a conversation longer than the model's context: auto leaves out its oldest turns, "
        "disabled is an error. Without it, the gateway chooses.",
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--json-schema", metavar="JSON|FILE", help="A JSON Schema, or a file with one: the answer matches it."
    ),
]
Choice = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="A text that the answer may be, and it is one of them. Given several times."),
]
Grammar = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, metavar="FILE", help="A grammar, Lark's or GBNF: the answer is of it."),
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        metavar="NAME[=JSON]|FILE",
        help="A tool of the mesh, called with these arguments or with the question; or a file with one of your own "
        "that the model may call: name, description and parameters (a JSON Schema), as chat APIs have it. May be given "
        "several times.",
    ),
]
Mcp = Annotated[
    list[str] | None,
    typer.Option("--mcp", metavar="SOURCE", help="Offer the model all tools of a source that the gateway knows."),
]
Collections = Annotated[
    list[str] | None,
    typer.Option("--collection", metavar="NAME", help="Search a collection with the question: the tool search_NAME."),
]
Agent = Annotated[
    bool, typer.Option("--agent", help="Offer the tools of the mesh to the model, which calls them as it sees fit.")
]
ToolChoice = Annotated[
    str | None, typer.Option(metavar="CHOICE", help="auto, none, required, or the name of the tool to call.")
]
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
    str,
    typer.Option(
        "--vision",
        envvar="HEDGEROW_TARGET_VISION",
        metavar="HOST:PORT",
        help=f"The vision service. {_RUNNING} as below.",
        callback=running.address_of("vision"),
    ),
]
AudioService = Annotated[
    str,
    typer.Option(
        envvar="HEDGEROW_TARGET_AUDIO",
        metavar="HOST:PORT",
        help=f"The audio service. {_RUNNING} as below.",
        callback=running.address_of("audio"),
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option("--json", help="Print exactly one JSON object on stdout, also on errors; with --stream, one a line."),
]


class Reach(TypedDict):
    """Where to ask, as whom, and how: `Client(**reach)`."""

    target: str
    api_key: str | None
    tls: Tls | None
    allow_plaintext_key: bool


def reach(
    target: str,
    service: str,
    api_key: str | None = None,
    use_tls: bool = False,
    ca_file: Path | None = None,
    tls_dir: Path | None = None,
    plaintext_key: bool = False,
) -> Reach:
    """The options of a command that asks `service`, put together."""
    if tls_dir and (use_tls or ca_file):
        raise typer.BadParameter("its ca.crt is the authority; leave --tls and --ca-file out", param_hint="--tls-dir")
    tls = _tls(service, use_tls, ca_file, tls_dir)
    return {"target": target, "api_key": api_key, "tls": tls, "allow_plaintext_key": plaintext_key}


def _tls(service: str, use_tls: bool, ca_file: Path | None, tls_dir: Path | None) -> Tls | None:
    if not (use_tls or ca_file or tls_dir):  # plain text, the usual case, loads nothing
        return None
    from hedgerow import HedgerowError, Tls

    tls = Tls.from_folder(tls_dir, service) if tls_dir else Tls(ca_file)
    try:
        tls.pem()
    except HedgerowError as error:
        raise typer.BadParameter(error.message) from None
    return tls
