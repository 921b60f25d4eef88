# Pulls models of the catalogue into a folder, and converts them: `hedgerow models pull NAME`. Needs torch for that.
# Build from the repository's root: docker build -f deploy/docker/models.Dockerfile .
FROM python:3.11-slim-bookworm AS build
# Bytecode is made here: the user of the running image may not write it.
ENV VIRTUAL_ENV=/opt/hedgerow UV_COMPILE_BYTECODE=1
WORKDIR /src
# The packages first: they change less often than the code. Each file must have one of the SHA-256 in the lock. The SDK,
# which is one of them, is built below with the rest of this tree.
COPY pyproject.toml requirements.lock ./
RUN sed -n '/^uv==/,/[^\\]$/p' requirements.lock > uv.txt && echo hedgerow > sdk.txt \
    && pip install --no-cache-dir --require-hashes -r uv.txt && python -m venv /opt/hedgerow
# torch's CPU build is not on PyPI. A base image that keeps its own wheels (UV_FIND_LINKS) needs no index for it.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN export UV_FIND_LINKS="${UV_FIND_LINKS:-$TORCH_INDEX/torch/}"; \
    uv pip install --no-cache --require-hashes --no-build \
    --constraints requirements.lock --excludes sdk.txt -r pyproject.toml --extra models --extra cli --extra launcher
COPY README.md LICENSE ./
COPY hedgerow hedgerow
COPY hedgerow_cli hedgerow_cli
COPY launcher launcher
COPY services/__init__.py services/
RUN uv pip install --no-cache --no-deps --build-constraint requirements.lock . ./hedgerow

FROM python:3.11-slim-bookworm
# Empty, and its user's own, for a volume of models.
RUN useradd --uid 10001 --create-home hedgerow && install -d -o hedgerow /models
COPY --from=build /opt/hedgerow /opt/hedgerow
ENV PATH=/opt/hedgerow/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HEDGEROW_MODELS_CACHE=/models
USER 10001
WORKDIR /home/hedgerow
ENTRYPOINT ["hedgerow"]
