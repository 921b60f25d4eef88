"""The stages that a gateway starts with: its own, and those of the deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import import_module

import grpc

from services.gateway.answer.registry import STAGES
from services.gateway.answer.stages.own import OwnStage, ServiceStage
from services.gateway.answer.stages.stage import AnswerStage
from services.runtime.security.tls import Dial

_LONGEST_NAME = 32


class BadStage(Exception):
    """A stage that cannot be loaded. The text names it."""


async def opened(
    places: Sequence[str], channels: Mapping[str, grpc.aio.Channel], dial: Dial, stack: AsyncExitStack
) -> Mapping[str, type[AnswerStage]]:
    """The stages of answers, with those at `places`. Their connections stay open until `stack` is left; `channels`
    are those to stages' own services, by stage. Raises `BadStage`."""

    async def connect(address: str, identity: str) -> grpc.aio.Channel:
        return await stack.enter_async_context(dial(address, identity))

    stages = load(places)
    asking = {name: stage for name, stage in stages.items() if issubclass(stage, ServiceStage)}
    if unknown := channels.keys() - asking.keys():
        raise BadStage(
            f"stage_addresses: stages with a service ({', '.join(asking)}), got {', '.join(sorted(unknown))}"
        )
    for name, stage in asking.items():
        stage.channel = channels.get(name)
    for own in stages.values():
        if issubclass(own, OwnStage):
            await own.open(connect)
    return stages


def load(places: Sequence[str], known: Mapping[str, type[AnswerStage]] = STAGES) -> Mapping[str, type[AnswerStage]]:
    """The stages of an answer, with those at `places` (`package.module:Class`). Raises `BadStage`."""
    stages = dict(known)
    for place in places:
        stages = _placed(_found(place), place, stages)
    return stages


def _found(place: str) -> type[AnswerStage]:
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadStage(f"own_stages: package.module:Class, got {place}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, AnswerStage)):
        raise BadStage(f"own_stages: a subclass of OwnStage, got {place}")
    return found


def _placed(stage: type[AnswerStage], place: str, stages: dict[str, type[AnswerStage]]) -> dict[str, type[AnswerStage]]:
    """`stages`, with this one in front of the first of those that wait for it."""
    name = getattr(stage, "name", "")
    if not (name.isidentifier() and name.islower() and len(name) <= _LONGEST_NAME) or name in stages:
        raise BadStage(f"own_stages: {place}: a name of its own, of lower case, at most {_LONGEST_NAME}, got {name!r}")
    if unknown := {*stage.after, *stage.before} - stages.keys():
        raise BadStage(f"own_stages: {place}: stages out of {', '.join(stages)}, got {', '.join(sorted(unknown))}")
    order = list(stages)
    at = min((order.index(each) for each in stage.before), default=len(order))
    if late := [each for each in stage.after if order.index(each) >= at]:
        raise BadStage(f"own_stages: {place}: it cannot be after {late[0]} and before {order[at]}")
    return {each: stages.get(each, stage) for each in (*order[:at], name, *order[at:])}
