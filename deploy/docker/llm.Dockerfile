# One model on vLLM's CPU build, or a remote model behind an OpenAI-compatible server.
# Build from the repository's root: docker build -f deploy/docker/llm.Dockerfile .
FROM python:3.11-slim-bookworm AS build
RUN pip install --no-cache-dir uv==0.13.8 && python -m venv /opt/hedgerow
ENV VIRTUAL_ENV=/opt/hedgerow
WORKDIR /src
# The packages first: they change less often than the code.
COPY pyproject.toml requirements.lock ./
RUN uv pip install --no-cache --constraints requirements.lock -r pyproject.toml --extra llm \
    --extra-index-url https://download.pytorch.org/whl/cpu --index-strategy unsafe-best-match
COPY README.md LICENSE ./
COPY hedgerow hedgerow
COPY services/__init__.py services/
COPY services/runtime services/runtime
COPY services/llm services/llm
RUN uv pip install --no-cache --no-deps .

FROM python:3.11-slim-bookworm
# vLLM's CPU kernels link libnuma; it compiles more with g++ when it starts, unless told to run eagerly.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends g++ libnuma1 && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --create-home hedgerow
COPY --from=build /opt/hedgerow /opt/hedgerow
ENV PATH=/opt/hedgerow/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HEDGEROW_LLM_ADDRESS=0.0.0.0:50053
USER 10001
EXPOSE 50053
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --start-interval=1s \
    CMD ["python", "-m", "services.runtime.probe", "127.0.0.1:50053"]
ENTRYPOINT ["python", "-m", "services.llm"]
