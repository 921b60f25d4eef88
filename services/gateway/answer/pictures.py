"""How a model without vision is told what an image shows: a sentence for each image, from its labels.

The sentences are the same for the same labels, because the cache keys an answer by their digests. Names of classes come
from the vision model's own file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.vision.v1 import vision_pb2

LABELS = "{labels}"  # in a template
_LEAST = 0.05  # probability of a label that is told after the first
_UNSURE = 0.3  # below it the best label is wrong more often than not (EfficientNet-Lite0)
_SURE = 0.9


def picture_lines(sights: pb.Sights | None, template: str = "") -> Sequence[str]:
    """A line for each image: `template` with its labels in the place of `{labels}`, or an English sentence without
    one."""
    pictures = sights.pictures if sights else ()
    if template:
        return [template.replace(LABELS, ", ".join(_plain(picture))) for picture in pictures]
    count = len(pictures)
    names = ["the attached image"] if count == 1 else [f"attached image {number}" for number in range(1, count + 1)]
    return [_sentence(name, picture) for name, picture in zip(names, pictures, strict=True)]


def _plain(picture: vision_pb2.Labels) -> Iterator[str]:
    return (f"{label.name} ({label.score:.2f})" for label in picture.labels)


def _sentence(name: str, picture: vision_pb2.Labels) -> str:
    labels = list(_worth_telling(picture))
    if not labels:
        return f"It is not known what {name} shows."
    told = ", ".join(f"{label.name} ({label.score:.0%})" for label in labels)
    best = labels[0].score
    if best < _UNSURE:
        return f"It is not clear what {name} shows. The image classifier's best guesses: {told}."
    subject = name[0].upper() + name[1:]
    return f"{subject} {'shows' if best >= _SURE else 'most likely shows'}: {told}."


def _worth_telling(picture: vision_pb2.Labels) -> Iterator[vision_pb2.Label]:
    """The best label of each name; classes may share one."""
    seen: set[str] = set()
    for label in picture.labels:
        if label.name not in seen and (not seen or label.score >= _LEAST):
            seen.add(label.name)
            yield label
