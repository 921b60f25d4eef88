# `make demo` and `make test` are all a fresh clone needs: whatever is missing is set up first.
.DEFAULT_GOAL := help
PYTHON ?= python3.11
BIN := .venv/bin
# Tests start services by the hundred: each compiles our modules once, whatever the machine says.
unexport PYTHONDONTWRITEBYTECODE
STAMP := .venv/.installed

# torch's CPU build is not on PyPI. A machine that keeps its own wheels says where (pip's PIP_FIND_LINKS). Elsewhere the
# page of PyTorch's index that lists torch alone is read, so that every other package has one source, the package index.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
LINKS := $(or $(UV_FIND_LINKS),$(PIP_FIND_LINKS),$(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null))
TORCH := $(foreach link,$(or $(LINKS),$(TORCH_INDEX)/torch/),--find-links $(link))
# The same for `make lock`: uv takes no hashes from such a page, but from an index that it reads for torch alone.
LOCKED_TORCH := $(if $(LINKS),$(TORCH),--torch-backend cpu)

UV := $(BIN)/uv
# The lines of requirements.lock for some packages, with their hashes: $(call locked,one|another).
locked = sed -nE '/^($(1))==/,/[^\\]$$/p' requirements.lock
# A file's tests run in one worker; files start in the order of their names, so the long folders come before tests/unit.
# Three workers, because tests of processes wait; two for what computes, because each worker collects for seconds.
PARALLEL := --dist loadfile --no-loadscope-reorder
# Tests that measure wait for nine tenths of their time: three files at a time leave the cores free that they need.
MEASURED := -n 3 --dist loadfile

.PHONY: help setup demo up unit test faults images mutants lint check format proto sync docs lock pin sbom release clean

help:  ## This list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP)  ## Make .venv with the locked versions

$(STAMP): requirements.lock pyproject.toml hedgerow/pyproject.toml
	@test -x $(UV) || (echo "setup: making .venv" && $(PYTHON) -m venv .venv \
	  && $(call locked,uv) | $(BIN)/python -m pip install -q --require-hashes -r /dev/stdin)
	@echo "setup: installing $$(grep -c == requirements.lock) packages (about 4 GB; one to some minutes)"
	@$(UV) pip sync -q --require-hashes --no-build --compile-bytecode --python $(BIN)/python $(TORCH) requirements.lock
	@# xds-protos brings older copies of files that belong to these two; theirs must be the ones that stay.
	@$(call locked,googleapis-common-protos|opentelemetry-proto) \
	  | $(UV) pip install -q --require-hashes --python $(BIN)/python --no-deps --reinstall -r -
	@$(UV) pip install -q --python $(BIN)/python --no-deps --build-constraint requirements.lock -e . -e ./hedgerow
	@touch $@

demo: setup  ## Start the mesh, ask it questions, stop it
	@$(BIN)/hedgerow demo

up: setup  ## Start the mesh and keep it running
	@$(BIN)/hedgerow up --demo

unit: setup  ## Run the unit tests, with a fifth of the examples; the inner loop
	@$(BIN)/python -m pytest -q tests/unit -n 2 $(PARALLEL) --hypothesis-profile=short

test: setup  ## Run every test: those that measure come last
	$(BIN)/python -m pytest -m "not measures" -n 3 $(PARALLEL); passed=$$?; \
	  $(BIN)/python -m pytest -m measures tests/fault $(MEASURED) && exit $$passed

faults: setup  ## Run the fault tests at full size, and write docs/faults.json and docs/faults.md
	@$(BIN)/python -m pytest tests/fault --faults-report

images: setup  ## Build the images, run the compose meshes in containers and ask them; needs a Docker engine
	@$(BIN)/python -m pytest tests/containers --images

mutants: setup  ## Change 100 functions one at a time, in a copy, and print the changes that no unit test notices
	@$(BIN)/python -m scripts.mutants $(WORDS)

lint: setup  ## Lint, types, imports: all that runs no test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.prose
	$(BIN)/hadolint deploy/docker/*.Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose*.yml
	$(BIN)/buf lint

check: lint  ## The same and the contract tests
	$(BIN)/python -m pytest -q tests/contract -n 2 $(PARALLEL)

format: setup  ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: setup  ## Generate the stubs from protos/ and record what callers may rely on
	$(BIN)/python -m protos.generate
	$(BIN)/buf breaking --against protos/snapshot.binpb
	$(BIN)/buf build --exclude-source-info -o protos/snapshot.binpb

sync: setup  ## Derive the SDK's blocking clients from its asyncio ones
	@$(BIN)/python -m scripts.unasync

docs: setup  ## Write the tables of the documents, what follows from the request options, and the chart's files
	$(BIN)/python -m scripts.request_options
	$(BIN)/python -m docs.settings
	$(BIN)/python -m docs.labels
	$(BIN)/python -m docs.mesh_file
	$(BIN)/python -m docs.pairs
	$(BIN)/python -m docs.sdk
	$(BIN)/python -m scripts.helm_files
	$(BIN)/python -m scripts.images

# Each folder of the tests with packages for Node. A lock names no registry: npm takes that of the machine.
NODE_FOLDERS := $(dir $(wildcard tests/clients/package.json tests/clients/*/package.json tests/integration/node/package.json))

lock: setup  ## Resolve requirements.lock anew, and the clients of the tests (Python and Node)
	$(UV) pip compile -q pyproject.toml --extra dev --python-version 3.11 $(LOCKED_TORCH) --no-header \
	  --no-annotate --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-package hedgerow \
	  -o requirements.lock
	for wanted in tests/clients/*.in; do $(UV) pip compile -q --universal --python-version 3.11 --no-header \
	  --no-annotate --no-emit-index-url --no-emit-find-links $$wanted -o $${wanted%.in}.txt; done
	for folder in $(NODE_FOLDERS); do (cd $$folder && npm install --package-lock-only --ignore-scripts --no-audit --no-fund \
	  --omit-lockfile-registry-resolved) || exit 1; done

pin:  ## Pin the Dockerfiles' base images by digest; needs Docker with buildx and the images' registry
	@for tag in $$(sed -nE 's/^FROM ([^ @]+:[^ @]+)( .*)?$$/\1/p' deploy/docker/*.Dockerfile | sort -u); do \
	  digest=$$(docker buildx imagetools inspect "$$tag" --format '{{.Manifest.Digest}}') || exit 1; \
	  sed -i -E "s|^FROM $$tag( .*)?\$$|FROM $$tag@$$digest\1|" deploy/docker/*.Dockerfile; echo "$$tag@$$digest"; done

sbom: setup  ## Write build/sbom.cdx.json: every package of requirements.lock with licence and hashes (CycloneDX)
	@$(BIN)/python -m scripts.sbom

release: setup  ## Make the files of a release in dist/, without a tag (RELEASE=--no-dry-run: with it); publishes nothing
	@$(BIN)/python -m scripts.release $(RELEASE)

clean:  ## Remove what was made
	rm -rf .venv .hedgerow build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
