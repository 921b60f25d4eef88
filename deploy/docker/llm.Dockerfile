# One model on vLLM's CPU build, or a remote model behind an OpenAI-compatible server.
# Build from the repository's root: docker build -f deploy/docker/llm.Dockerfile .
FROM python:3.11-slim-bookworm AS build
# The build compiles the bytecode: a running container cannot write it, so each start would compile everything again.
ENV VIRTUAL_ENV=/opt/hedgerow UV_COMPILE_BYTECODE=1
WORKDIR /src
# The packages first: they change less often than the code. Each file must have one of the SHA-256 in the lock. The SDK,
# which is one of them, is built below with the rest of this tree.
COPY pyproject.toml requirements.lock ./
RUN sed -n '/^uv==/,/[^\\]$/p' requirements.lock > uv.txt && echo hedgerow > sdk.txt \
    && pip install --no-cache-dir --require-hashes -r uv.txt && python -m venv --without-pip /opt/hedgerow
# torch's CPU build is not on PyPI. A base image that keeps its own wheels (UV_FIND_LINKS) needs no index for it.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN export UV_FIND_LINKS="${UV_FIND_LINKS:-$TORCH_INDEX/torch/}"; \
    uv pip install --no-cache --require-hashes --no-build \
    --constraints requirements.lock --excludes sdk.txt -r pyproject.toml --extra llm
COPY README.md LICENSE ./
COPY hedgerow hedgerow
COPY services/__init__.py services/
COPY services/runtime services/runtime
COPY services/llm services/llm
RUN uv pip install --no-cache --no-deps --build-constraint requirements.lock . ./hedgerow

FROM python:3.11-slim-bookworm
# vLLM's CPU kernels link libnuma; at its start vLLM compiles kernels with g++, unless an option makes it run eagerly.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends g++ libnuma1 && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --create-home hedgerow
COPY --from=build /opt/hedgerow /opt/hedgerow
ENV PATH=/opt/hedgerow/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HEDGEROW_LLM_ADDRESS=0.0.0.0:50053
USER 10001
EXPOSE 50053
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s \
    CMD ["python", "-m", "services.runtime.probe", "127.0.0.1:50053"]
ENTRYPOINT ["python", "-m", "services.llm"]
