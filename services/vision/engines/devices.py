"""The device and the precision a model asks for, against what there is."""

from __future__ import annotations

from services.vision.errors import BadModel


def choose_device(asked: str, gpus: int, engine: str) -> str:
    """`cpu` or `cuda:N`, for `auto`, `cpu`, `cuda` or `cuda:N` on a machine on which the engine can use so many
    GPUs."""
    if asked == "cpu" or (asked == "auto" and not gpus):
        return "cpu"
    index = int(asked.partition(":")[2] or 0)
    if index >= gpus:
        raise BadModel(f"device: {engine} can use {gpus} GPUs here, got {asked}")
    return f"cuda:{index}"


def refuse_precision(precision: str, device: str, engine: str, supported: str) -> BadModel:
    """The error for a precision that this engine has not on this device."""
    return BadModel(f"precision: {supported} with {engine} on {device}, got {precision}")
