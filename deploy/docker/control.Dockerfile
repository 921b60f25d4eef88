# The control plane: the topology as xDS. No model, no torch. The topology is mounted.
# Build from the repository's root: docker build -f deploy/docker/control.Dockerfile .
FROM python:3.11-slim-bookworm AS build
# The build compiles the bytecode: a running container cannot write it, so each start would compile everything again.
ENV VIRTUAL_ENV=/opt/hedgerow UV_COMPILE_BYTECODE=1
WORKDIR /src
# The packages first: they change less often than the code. Each file must have one of the SHA-256 in the lock. The SDK,
# which is one of them, is built below with the rest of this tree.
COPY pyproject.toml requirements.lock ./
RUN sed -n '/^uv==/,/[^\\]$/p' requirements.lock > uv.txt && echo hedgerow > sdk.txt \
    && pip install --no-cache-dir --require-hashes -r uv.txt && python -m venv --without-pip /opt/hedgerow
RUN uv pip install --no-cache --require-hashes --no-build \
    --constraints requirements.lock --excludes sdk.txt -r pyproject.toml --extra control
# xds-protos brings older copies of files that belong to these two; theirs must be the ones that stay.
RUN sed -nE '/^(googleapis-common-protos|opentelemetry-proto)==/,/[^\\]$/p' requirements.lock > own.txt \
    && uv pip install --no-cache --require-hashes --no-deps --reinstall -r own.txt
COPY README.md LICENSE ./
COPY hedgerow hedgerow
COPY services/__init__.py services/
COPY services/runtime services/runtime
COPY services/control services/control
RUN uv pip install --no-cache --no-deps --build-constraint requirements.lock . ./hedgerow

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --create-home hedgerow
COPY --from=build /opt/hedgerow /opt/hedgerow
ENV PATH=/opt/hedgerow/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HEDGEROW_CONTROL_ADDRESS=0.0.0.0:50060
USER 10001
EXPOSE 50060
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-m", "services.runtime.probe", "127.0.0.1:50060"]
ENTRYPOINT ["python", "-m", "services.control"]
