# One model on vLLM for NVIDIA GPUs. vLLM's own image brings CUDA, torch and vLLM in versions that fit each other.
# Build from the repository's root: docker build -f deploy/docker/llm-cuda.Dockerfile .
FROM vllm/vllm-openai:v0.32.0
WORKDIR /src
COPY pyproject.toml requirements.lock ./
# Of the lock, what vLLM does not bring: torch there is the CPU's build. vLLM is the base image's, as the check says.
RUN sed -n '/^uv==/,/[^\\]$/p' requirements.lock > uv.txt && echo hedgerow > sdk.txt \
    && python3 -m pip install --no-cache-dir --require-hashes -r uv.txt \
    && python3 -m uv pip install --system --no-cache --require-hashes --no-build \
    --constraints requirements.lock --excludes sdk.txt -r pyproject.toml --extra llm-remote
COPY README.md LICENSE ./
COPY hedgerow hedgerow
COPY services/__init__.py services/
COPY services/runtime services/runtime
COPY services/llm services/llm
RUN python3 -m uv pip install --system --no-cache --no-deps --build-constraint requirements.lock . ./hedgerow \
    && python3 -c "from importlib.metadata import version as of; assert of('vllm').startswith('0.32.0'), of('vllm')" \
    && useradd --uid 10001 --create-home hedgerow && install -d -o hedgerow /var/cache/hub
ENV PYTHONUNBUFFERED=1 \
    HEDGEROW_LLM_ADDRESS=0.0.0.0:50053
USER 10001
WORKDIR /home/hedgerow
EXPOSE 50053
HEALTHCHECK --interval=10s --timeout=5s --start-period=900s \
    CMD ["python3", "-m", "services.runtime.probe", "127.0.0.1:50053"]
ENTRYPOINT ["python3", "-m", "services.llm"]
