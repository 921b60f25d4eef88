"""What `hedgerow cache train` and `calibrate` make of an operator's labelled pairs: one folder.

`verdict.json` has the weights of the score, the thresholds that hold for it, and what they were made of. Beside it lies
a verifier, where one was trained: `model.bin` and `config.json` for CTranslate2, `tokenizer.json`, and `head.npy`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from services.cache.verdict.score import FEATURES

FILE = "verdict.json"
FORMAT = 1
Share = Annotated[float, Field(ge=0, le=1)]


class Unusable(Exception):
    """A folder that holds no verdict of this version, or one that does not fit."""


class Threshold(BaseModel):
    """The least score with which wrong hits are at most the share `wrong` of all lookups, with 95% confidence.

    Of `lookups` pairs that were neither trained nor fitted on, `wrong_hits` were wrong with it, and the share `found`
    of the duplicates was found.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    wrong: Share
    score: float
    lookups: int
    wrong_hits: int
    found: Share


class Trained(BaseModel):
    """`verdict.json`. `floor`: the least cosine of a pair that is scored. `made_of`: the pairs, the seed, and how long
    it took, for people."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    embedder: str
    floor: float = Field(ge=0.5, le=1)
    weights: dict[str, float]
    intercept: float
    thresholds: list[Threshold]
    made_of: dict[str, Any] = {}

    @model_validator(mode="after")
    def _is_known(self) -> Trained:
        if self.format != FORMAT:
            raise ValueError(f"format: {FORMAT} is what this version reads, got {self.format}")
        if set(self.weights) != set(FEATURES):
            raise ValueError(f"weights: one for each of {', '.join(FEATURES)}")
        return self

    def least(self, wrong: float) -> float:
        """The least score that is accepted where the share `wrong` of lookups may be wrong; above 1 where no threshold
        holds so much."""
        fitting = [threshold.score for threshold in self.thresholds if threshold.wrong <= wrong]
        return min(fitting, default=2.0)


def read(folder: Path, embedder: str) -> Trained:
    """What is in a folder, for the engine named `embedder`. Raises `Unusable`."""
    try:
        trained = Trained.model_validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError) as error:
        raise Unusable(f"verdict: {folder / FILE} is not usable: {error}") from None
    if trained.embedder != embedder:
        raise Unusable(f"verdict: {folder} was made for {trained.embedder}, and the cache embeds with {embedder}")
    return trained


def digest(folder: Path) -> str:
    """Of all that a folder's scores are made of."""
    total = hashlib.sha256()
    for file in sorted(each for each in folder.iterdir() if each.is_file()):
        with file.open("rb") as content:
            total.update(file.name.encode() + hashlib.file_digest(content, "sha256").digest())
    return total.hexdigest()


def write(folder: Path, trained: Trained) -> None:
    """Put it into a folder that is there, at once."""
    draft = folder / f"{FILE}.new"
    draft.write_text(trained.model_dump_json(indent=1) + "\n")
    draft.rename(folder / FILE)
