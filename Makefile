# `make demo` and `make test` are all a fresh clone needs: whatever is missing is set up first.
.DEFAULT_GOAL := help
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed

# torch's CPU build is not on PyPI. A machine that keeps its own wheels says where (pip's PIP_FIND_LINKS); the open
# internet has PyTorch's index.
LINKS := $(or $(UV_FIND_LINKS),$(PIP_FIND_LINKS),$(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null))
TORCH := $(if $(LINKS),--find-links "$(LINKS)",--extra-index-url https://download.pytorch.org/whl/cpu --index-strategy unsafe-best-match)

.PHONY: help setup demo up test check format proto lock clean

help:  ## This list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP)  ## Make .venv with the locked versions

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/uv || (echo "setup: making .venv" && $(PYTHON) -m venv .venv && $(BIN)/python -m pip install -q uv==0.13.8)
	@echo "setup: installing $$(grep -c == requirements.lock) packages (about 4 GB; 15 s to some minutes)"
	@$(BIN)/uv pip sync -q --python $(BIN)/python $(TORCH) --no-deps requirements.lock
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps -e . uv==0.13.8
	@touch $@

demo: setup  ## Start the mesh, ask three questions, stop it
	@$(BIN)/hedgerow demo

up: setup  ## Start the mesh and keep it running
	@$(BIN)/hedgerow up

test: setup  ## Run every test
	@$(BIN)/python -m pytest

check: setup  ## Lint, types, imports, contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/contract

format: setup  ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: setup  ## Generate the stubs from protos/
	$(BIN)/python -m bench.tools.proto

lock: setup  ## Resolve requirements.lock anew
	$(BIN)/uv pip compile -q pyproject.toml --extra dev --python-version 3.11 $(TORCH) --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links -o requirements.lock

clean:  ## Remove what was made
	rm -rf .venv .hedgerow .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
