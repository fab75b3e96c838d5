# What a person types. Every target sets up what it needs; nothing outside this folder is changed.
# PYTHON=python3.12 make setup   uses another interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt
# Two workers: crash and e2e tests wait for processes most of the time. WORKERS=0 runs in one process.
WORKERS ?= 2
PYTEST := $(PY) -m pytest -n $(WORKERS) --dist worksteal
FOLDERS := unit property contract crash e2e browser
SOURCES := journal projections recovery integrations tests

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run serve test $(addprefix test-,$(FOLDERS)) test-long prove-ourselves audit lint imports types fmt bench bench-peers \
        docs traceability screenshots wheel-check clean

help: ## List what can be made
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  test-<folder>    Run one folder of tests: $(FOLDERS)"

# --- the environment --------------------------------------------------------------------------------------------------
# A stamp file in .venv says what is installed; it is redone when the definition or the pins change.

$(PY):
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$$($(PYTHON) --version) is too old: Python 3.11 or newer is needed (PYTHON=python3.12 make ...)" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments: install its venv module (Debian: apt-get install python3-venv)" >&2; exit 2; }
	@echo "setup: making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 2; }

$(VENV)/.setup-pip: .ci/constraints.txt | $(PY)
	@$(INSTALL) --upgrade pip
	@touch $@

$(VENV)/.setup-run: pyproject.toml .ci/constraints.txt $(VENV)/.setup-pip
	@echo "setup: installing what the service needs"
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.setup-test: $(VENV)/.setup-run
	@echo "setup: installing what the tests need"
	@$(INSTALL) --group test
	@touch $@

$(VENV)/.setup-lint: $(VENV)/.setup-test
	@echo "setup: installing the linters"
	@$(INSTALL) --group lint
	@touch $@

setup: $(VENV)/.setup-run ## Make .venv with the run-time packages

# --- use it -----------------------------------------------------------------------------------------------------------

run: $(VENV)/.setup-run ## Run the demo: real git, a crash in the middle of a merge, recovery (ARGS="--tasks 5")
	@$(BIN)/journal demo $(ARGS)

serve: $(VENV)/.setup-run ## Run the service with journal.toml or the built-in defaults (ARGS="--port 8080")
	@$(BIN)/journal serve $(ARGS)

# --- test it ----------------------------------------------------------------------------------------------------------

test: $(VENV)/.setup-test ## Run the default suite, slowest tests listed at the end
	@$(PYTEST) --durations=15 $(ARGS)

$(addprefix test-,$(FOLDERS)): test-%: $(VENV)/.setup-test
	@$(PYTEST) tests/$* $(ARGS)

# What is marked `long` has one size, and takes hours in all; only the full run asks for it, and for more storms.
# CI's slice: what scales without waiting for others, and of what is long the tests marked `slice`.
QUICK := tests/unit tests/property tests/crash/test_kill_loop.py tests/crash/test_disk_faults.py
SLICE := $(if $(filter ci,$(LONG)),$(QUICK) -m "slice or (scales and not long)",-m "long or scales")
test-long: $(VENV)/.setup-test ## Repeat what scales, many times over; LONG=ci is a slice for CI
	@LONG=$${LONG:-full} $(PYTEST) $(SLICE) -o faulthandler_timeout=0 --durations=15 $(ARGS)

prove-ourselves: $(VENV)/.setup-test ## Break our own code and expect to notice; the figures go to docs/reliability.md
	@$(PY) -m tests.reliability
	@$(PYTEST) -m mutants -o faulthandler_timeout=0 --durations=15 $(ARGS)

bench: $(VENV)/.setup-test ## Measure the targets; BENCH=quick takes a few minutes
	@$(PY) -m tests.benchmarks $(ARGS)

bench-peers: tests/benchmarks/requirements-peers.txt ## Install the systems that `make bench` compares with, apart
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@command -v npm >/dev/null && npm install --silent --prefix .venv-peers @restatedev/restate-server@1.7.12 \
		|| echo "bench-peers: without npm there is no Restate server, so its rows are left out"

# --- keep it in order -------------------------------------------------------------------------------------------------

lint: $(VENV)/.setup-lint imports ## Check style, format and the import contracts
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)

imports: $(VENV)/.setup-lint ## Check the import contracts only
	@$(BIN)/lint-imports --no-logo

audit: $(VENV)/.setup-lint ## Check that what is installed is pinned, and ask for known holes where somebody answers
	@$(PY) -m tests.audit $(PIP_AUDIT)

types: $(VENV)/.setup-lint ## Check types, strictly, tests too
	@$(BIN)/mypy

fmt: $(VENV)/.setup-lint ## Format, and fix what can be fixed safely
	@$(BIN)/ruff check --fix --quiet $(SOURCES) || true
	@$(BIN)/ruff format $(SOURCES)

docs: $(VENV)/.setup-test traceability ## Check every link of the documentation and bring the generated pages up to date
	@$(PY) -m tests.reference
	@$(PY) -m tests.links

traceability: $(VENV)/.setup-test ## Write docs/traceability.md: which test proves what
	@$(PY) -m tests.traceability

screenshots: $(VENV)/.setup-test ## Take the pictures of the page that the documentation shows (needs Chromium)
	@$(PY) -m tests.browser.screenshots $(ARGS)

wheel-check: $(VENV)/.setup-test ## Build the wheel, install it elsewhere, see that it runs and holds the four packages only
	@$(PY) -m tests.wheel

clean: ## Remove what was made here, .venv too
	@rm -rf $(VENV) .venv-peers .bench build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
