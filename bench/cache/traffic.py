"""Traffic that is judged by its labels, before anything is measured: what a cache has learnt of it is in force then."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from bench.cache.labels import Judged, Labels
from bench.cache.pairs import Pair, components
from services.cache.answers import Answers
from services.cache.keyed_question import KeyedQuestion
from services.cache.semantic_match.traffic import EVERYONE
from services.runtime.deadline import Deadline


@dataclass(frozen=True, slots=True)
class Traffic:
    """Pairs whose `b` is looked up, until there are so many verdicts."""

    pairs: Sequence[Pair] = ()
    verdicts: int = 0

    async def judge(self, answers: Answers, asked: Sequence[KeyedQuestion], labels: Labels) -> dict[str, object]:
        """Look the questions up and report of each sample what its labels say. One that they say nothing of is not
        reported. Returns how many verdicts and lookups there were, and what is in force then, for people."""
        judged = lookups = 0
        for question in asked:
            if judged == self.verdicts:
                break
            lookups += 1
            sample = (await answers.lookup(question, None, Deadline.never())).sample
            label = labels.judge(sample.asked, question.asked) if sample else Judged.UNLABELLED
            if sample and label is not Judged.UNLABELLED:
                right = label is Judged.RIGHT
                await answers.verified(question.traffic, sample.key, sample.score, sample.accepted, right)
                judged += 1
        traffic = asked[0].traffic if asked else EVERYONE
        threshold = answers.verification.thresholds.of(traffic)
        return {"verdicts": judged, "traffic": lookups, "threshold": threshold}


def divided(given: Sequence[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """(traffic, measured), about half each, in an order that is drawn. Pairs that hang together by a question stay
    together: else what is measured would have been judged."""
    groups = list(components(given).values())
    order = random.Random(seed)  # a split is no secret
    order.shuffle(groups)
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for group in groups:
        parts[len(parts[0]) > len(parts[1])].extend(group)
    for part in parts:
        order.shuffle(part)
    return parts
