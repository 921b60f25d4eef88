"""Settings of the vision service. What a model needs stands in its own folder: see `manifest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from services.runtime import limits
from services.runtime.process.config import ServiceSettings
from services.runtime.process.fixed import Fixed


class VisionSettings(ServiceSettings):
    """Read from `HEDGEROW_VISION_*`."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_VISION_")

    address: str = Field("127.0.0.1:50055", description="Address of gRPC, host:port.")
    models_dir: Path = Field(Path("models"), description="Folder of folders, each with a `model.yaml`.")
    default_model: str = Field("", description="Model of requests that name none. Empty: the first by name.")
    engines: tuple[Literal["onnx", "export", "torchscript", "tensorrt"], ...] = Field(
        ("onnx",), min_length=1, description="Engines that may load files (docs/vision.md)."
    )
    digests: dict[str, Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")]] = Field(
        {}, description="SHA-256 of files below `models_dir`: {path: digest}. With any, no other file is loaded."
    )
    rescan_ms: Fixed[int] = Field(
        5_000, ge=50, description="How often to look for changes that a file system does not report."
    )
    threads: int = Field(0, ge=0, le=256, description="CPU threads of one model. 0: one for each usable core.")
    decode_threads: Fixed[int] = Field(2, ge=1, le=64, description="Pictures decoded at once, over all requests.")
    max_images: Fixed[int] = Field(64, ge=1, le=1024, description="Images, or tensors along the batch, of one request.")
    max_image_bytes: Fixed[int] = Field(
        limits.PICTURES_BYTES, ge=1, description="Largest encoded picture: what a message of a client holds."
    )
    max_pixels: int = Field(limits.PICTURE_PIXELS, ge=1, description="Largest picture in pixels.")
    max_queue: Fixed[int] = Field(256, ge=1, description="Images queued or running in one model; more are refused.")

    @model_validator(mode="after")
    def _one_request_fits(self) -> Self:
        if self.max_images > self.max_queue:
            raise ValueError("max_queue: at least max_images")
        return self
