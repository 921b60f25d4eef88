# Image models on ONNX Runtime and torch, on the CPU. Mount the folder of models on /models.
# Build from the repository's root: docker build -f deploy/docker/vision.Dockerfile .
FROM python:3.11-slim-bookworm AS build
RUN pip install --no-cache-dir uv==0.13.8 && python -m venv /opt/hedgerow
ENV VIRTUAL_ENV=/opt/hedgerow
WORKDIR /src
# The packages first: they change less often than the code.
COPY pyproject.toml requirements.lock ./
RUN uv pip install --no-cache --constraints requirements.lock -r pyproject.toml --extra vision \
    --extra-index-url https://download.pytorch.org/whl/cpu --index-strategy unsafe-best-match
COPY README.md LICENSE ./
COPY hedgerow hedgerow
COPY services/__init__.py services/
COPY services/runtime services/runtime
COPY services/vision services/vision
RUN uv pip install --no-cache --no-deps .

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --create-home hedgerow
COPY --from=build /opt/hedgerow /opt/hedgerow
ENV PATH=/opt/hedgerow/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HEDGEROW_VISION_ADDRESS=0.0.0.0:50055 \
    HEDGEROW_VISION_MODELS_DIR=/models
USER 10001
EXPOSE 50055
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --start-interval=1s \
    CMD ["python", "-m", "services.runtime.probe", "127.0.0.1:50055"]
ENTRYPOINT ["python", "-m", "services.vision"]
