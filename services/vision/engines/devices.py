"""The device and the precision a model asks for, against what there is."""

from __future__ import annotations

import re

from services.vision.errors import BadModel


def choose_device(asked: str, gpus: int, engine: str) -> str:
    """`cpu` or `cuda:N`, of a machine on which the engine can use so many GPUs."""
    if asked == "cpu" or (asked == "auto" and not gpus):
        return "cpu"
    match = re.fullmatch(r"auto|cuda(?::(\d+))?", asked)
    if not match:
        raise BadModel(f"device: auto, cpu, cuda or cuda:N, got {asked}")
    index = int(match[1] or 0)
    if index >= gpus:
        raise BadModel(f"device: {engine} can use {gpus} GPUs here, got {asked}")
    return f"cuda:{index}"


def refuse_precision(precision: str, device: str, engine: str, supported: str) -> BadModel:
    """The error for a precision that this engine has not on this device."""
    return BadModel(f"precision: {supported} with {engine} on {device}, got {precision}")
