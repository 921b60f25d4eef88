# The command line: asks a mesh, looks at it, makes certificates for one.
# Build from the repository's root: docker build -f deploy/docker/cli.Dockerfile .
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
    --constraints requirements.lock --excludes sdk.txt -r pyproject.toml --extra cli --extra launcher
COPY README.md LICENSE ./
COPY hedgerow hedgerow
COPY hedgerow_cli hedgerow_cli
COPY launcher launcher
COPY services/__init__.py services/
RUN uv pip install --no-cache --no-deps --build-constraint requirements.lock . ./hedgerow

FROM python:3.11-slim-bookworm
# Empty, and its user's own, for a volume of certificates.
RUN useradd --uid 10001 --create-home hedgerow && install -d -m 0700 -o hedgerow /certs
COPY --from=build /opt/hedgerow /opt/hedgerow
ENV PATH=/opt/hedgerow/bin:$PATH
USER 10001
WORKDIR /home/hedgerow
ENTRYPOINT ["hedgerow"]
