"""Makes a verdict folder of your own labelled pairs of questions.

`train` trains a verifier on three quarters of them, which takes up to `--minutes`; `calibrate` fits the score and
certifies its thresholds alone, with the verifier in the folder if it has one. Progress goes to stderr; stdout gets one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from services.cache import engines
from services.cache.config import CacheSettings
from services.cache.conversion import NoModel
from services.cache.training import fit, pairs
from services.cache.training.pairs import Parts
from services.cache.verdict import trained
from services.cache.verdict.trained import Trained
from services.cache.verdict.verifier import MODEL, CrossEncoder


def main(argv: Sequence[str]) -> None:
    """Run one command. Exits with 2, and says why, where its input is not usable."""
    parser = argparse.ArgumentParser(prog="python -m services.cache.training", description=__doc__)
    parser.add_argument("command", choices=("train", "calibrate"))
    parser.add_argument("pairs", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    if not given.minutes > 0:
        parser.error(f"--minutes: above 0, got {given.minutes:g}")
    try:
        made = make(given.pairs, given.folder, given.command == "train", given.minutes, given.seed)
    except (OSError, pairs.BadPairs, fit.TooFew, NoModel) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    print(json.dumps(_told(given.folder, made)))


def make(file: Path, folder: Path, train: bool, minutes: float, seed: int) -> Trained:
    """What is in `folder` then. Raises `BadPairs`, `TooFew`, `NoModel` and OSError."""
    begun = time.monotonic()
    labelled = pairs.read(file)
    if train and folder.exists():
        raise FileExistsError(f"{folder} exists: name a folder that is to be made")
    parts = pairs.split(labelled, seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    settings = CacheSettings()
    engine = engines.load(settings.embedder, settings.model_cache, settings.max_embedded_tokens, settings.model)
    with TemporaryDirectory(dir=folder.parent) as scratch:
        draft = folder if folder.exists() else Path(scratch) / "verdict"
        draft.mkdir(exist_ok=True)
        if train:
            _train(parts, engine, draft, minutes, seed)
        elif not (draft / MODEL).is_file():  # there is nothing to train, so all of that fits
            parts = replace(parts, fit=parts.train + parts.fit)
        verifier = CrossEncoder(draft) if (draft / MODEL).is_file() else None
        made_of: dict[str, Any] = {"pairs": len(labelled), "sha256": pairs.digest(labelled), "seed": seed}
        made = fit.fitted(parts, engine, verifier, made_of, _say)
        made.made_of["minutes"] = round((time.monotonic() - begun) / 60, 1)
        trained.write(draft, made)
        if draft != folder:
            draft.rename(folder)
    return made


def _train(parts: Parts, engine: engines.Engine, folder: Path, minutes: float, seed: int) -> None:
    _say(f"train: {len(parts.train)} pairs, {minutes:g} minutes at most")
    with _ctrl_c_waits():
        from services.cache.training import cross_encoder

    cross_encoder.train(parts.train, engine, folder, minutes, seed, _say)


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """PyTorch aborts the process where Ctrl-C comes while it loads, and nothing would be cleaned up."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _told(folder: Path, made: Trained) -> dict[str, Any]:
    return {"folder": str(folder), **made.model_dump(include={"thresholds", "made_of", "weights"})}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
