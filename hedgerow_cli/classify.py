"""`hedgerow classify`: labels of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow_cli import options
from hedgerow_cli.connection_options import Reach, to_vision
from hedgerow_cli.option_groups import with_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from hedgerow import AsyncVisionClient, Classification, HedgerowError, Label

AT_ONCE = 8  # files that are asked about side by side; the service computes them together


@with_options(reach=to_vision)
def classify(
    files: Annotated[list[Path], typer.Argument(help="Pictures: PNG, JPEG, WebP, GIF or AVIF.", metavar="FILE")],
    top: Annotated[int | None, typer.Option(metavar="K", help="Number of labels for each picture, best first.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="One model by name. Without it, the service's default.")
    ] = None,
    as_json: options.AsJson = False,
    *,
    reach: Reach,
) -> None:
    """Classify pictures.

    One line for each file: its name, then its labels, each with the index of its class and its probability, 0 to 1.
    A file that cannot be classified gets a line on stderr, the other files their labels, and the exit status is 1.

    \b
    Examples:
      hedgerow classify shape.png
      hedgerow classify --top 3 *.png
      hedgerow classify --json *.png | jq -r '.results[] | [.file, .labels[0].name] | @tsv'
    """
    import asyncio

    raise typer.Exit(asyncio.run(_classify(files, top, model, as_json, reach)))


async def _classify(files: list[Path], top: int | None, model: str | None, as_json: bool, reach: Reach) -> bool:
    """Whether any file failed."""
    import json

    from hedgerow import AsyncVisionClient, HedgerowError
    from hedgerow_cli.failures import reported

    results = []
    with reported(as_json):
        async with AsyncVisionClient(**reach) as client:
            await client.prewarm(timeout_s=2)  # a service that is not there is one failure, not one for each file
            width = max(len(str(file)) for file in files)
            async for file, seen in _in_order(client, files, top, model):
                results.append((file, seen))
                if not as_json:
                    _print(file, seen, width)
    if as_json:
        print(json.dumps({"results": [_as_object(file, seen) for file, seen in results]}))
    return any(isinstance(seen, HedgerowError) for _, seen in results)


async def _in_order(
    client: AsyncVisionClient, files: list[Path], top: int | None, model: str | None
) -> AsyncIterator[tuple[Path, Classification | HedgerowError]]:
    """The labels of each image, or the error; a few are classified at the same time."""
    import asyncio

    from hedgerow import HedgerowError

    async def look(file: Path) -> Classification | HedgerowError:
        try:
            return await client.classify(file, model=model, top_k=top)
        except HedgerowError as error:
            return error

    for first in range(0, len(files), AT_ONCE):
        some = files[first : first + AT_ONCE]
        for file, seen in zip(some, await asyncio.gather(*map(look, some)), strict=True):
            yield file, seen


def _print(file: Path, seen: Classification | HedgerowError, width: int) -> None:
    from hedgerow import HedgerowError
    from hedgerow_cli.failures import explain, notify
    from hedgerow_cli.terminal import harmless

    if isinstance(seen, HedgerowError):
        notify(f"{file}: {explain(seen)}")
    else:
        print(harmless(f"{file!s:{width}}  {_label_text(seen.results[0])}"), flush=True)


def _label_text(labels: Sequence[Label]) -> str:
    """`Egyptian cat #285 0.40  tabby #281 0.22`: names may repeat, indices do not."""
    return "  ".join(f"{label.name} #{label.index} {label.score:.2f}" for label in labels) or "nothing"


def _as_object(file: Path, seen: Classification | HedgerowError) -> dict[str, object]:
    from dataclasses import asdict

    from hedgerow import HedgerowError
    from hedgerow_cli.failures import as_object

    if isinstance(seen, HedgerowError):
        return {"file": str(file), "error": as_object(seen)}
    said = asdict(seen)
    return {"file": str(file), "labels": said.pop("results")[0], **said}
