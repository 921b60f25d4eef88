"""The service's metrics for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
IMAGES = Counter("hedgerow_vision_images", "Images, or rows of tensors, that a model has processed.", ["model"])
REFUSED = Counter(
    "hedgerow_vision_refused", "Images that were refused, by reason: format, bytes, pixels, structure, data.",
    ["why"],
)  # fmt: skip
DROPPED = Counter("hedgerow_vision_frames_dropped", "Frames of streams that a newer frame replaced.")
PREPROCESS_SECONDS = Histogram(
    "hedgerow_vision_preprocess_seconds", "Time to decode and resize an image, with its wait for a thread.",
    buckets=_SECONDS,
)  # fmt: skip
QUEUE_SECONDS = Histogram(
    "hedgerow_vision_queue_seconds", "Time an item waited for its batch.", ["model"], buckets=_SECONDS
)
COMPUTE_SECONDS = Histogram("hedgerow_vision_compute_seconds", "Time to compute a batch.", ["model"], buckets=_SECONDS)
MODELS = Gauge("hedgerow_vision_models", "Models that are loaded.")
LOADS = Counter("hedgerow_vision_loads", "Loads of models, by outcome: loaded, broken.", ["outcome"])
