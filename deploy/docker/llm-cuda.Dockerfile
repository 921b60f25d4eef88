# One model on vLLM for NVIDIA GPUs. vLLM's own image brings CUDA, torch and vLLM in versions that fit each other.
# Build from the repository's root: docker build -f deploy/docker/llm-cuda.Dockerfile .
FROM vllm/vllm-openai:v0.32.0
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY hedgerow hedgerow
COPY services/__init__.py services/
COPY services/runtime services/runtime
COPY services/llm services/llm
# requirements.lock is not used here: it pins torch's CPU build. The extra pins vLLM, whose packages the base image has.
# hadolint ignore=DL3013
RUN python3 -m pip install --no-cache-dir ".[llm-cuda]" && useradd --uid 10001 --create-home hedgerow \
    && install -d -o hedgerow /var/cache/hub
ENV PYTHONUNBUFFERED=1 \
    HEDGEROW_LLM_ADDRESS=0.0.0.0:50053
USER 10001
WORKDIR /home/hedgerow
EXPOSE 50053
HEALTHCHECK --interval=10s --timeout=5s --start-period=900s \
    CMD ["python3", "-m", "services.runtime.probe", "127.0.0.1:50053"]
ENTRYPOINT ["python3", "-m", "services.llm"]
