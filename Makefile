# Every command of the project. `make` lists them; each target does what it needs first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo serve test test-all soak check check-deploy check-containers bench budget proto sync docs format pin clean

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
# pip shows its progress on a terminal. A log gets the lines of `stage` only.
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check install $(if $(MAKE_TERMOUT),,--quiet)
# $(call stage,NUMBER,WHAT,COMMAND) says what it does and how long it took. WHAT has no comma.
stage = @echo "setup $(1)/4: $(2)"; SECONDS=0; $(3); echo "setup $(1)/4: done in $$SECONDS s"
BENCHMARKS := PYTHONPATH=tests $(BIN)/python -m benchmarks
PROTOS := proto/tidelog/v1/*.proto
# Some images set it, and without bytecode each of the hundreds of processes of a test run compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# More options for the command behind `serve`, `test` and `demo`, such as ARGS="-k crash".
ARGS ?=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## make .venv from python3 and the pinned dependencies; quick when up to date

demo: setup ## append a year of flights, kill the server, read everything back in Spark
	$(BIN)/python -m examples.flights $(ARGS)

serve: setup ## run a server on 127.0.0.1:7420 with its files in ./tidelog-data
	$(BIN)/tidelog serve $(ARGS)

# Three times as many workers as cores: most of the time a test waits, for a disk, a lease or a process that starts.
test: setup ## run the core of the tests, of every feature; at most ten minutes on two cores
	$(BIN)/pytest --numprocesses 6 -m "not soak and not extended" $(ARGS)

# The second run has the tests of suites.ON_ENGINE. pytest exits with 5 if ARGS selects none of them.
test-all: setup ## run the core and the tests that need much of Spark, several servers or many kills
	$(BIN)/pytest --numprocesses 4 -m "not soak" $(ARGS)
	$(BIN)/pytest --numprocesses 4 -m "not soak" --log-store engine $(ARGS) || $(if $(ARGS),[ $$? -eq 5 ],false)

soak: setup ## run the tests that take minutes or gigabytes; the other two targets have a short form of each
	$(BIN)/pytest -m soak $(ARGS)

check: setup ## format, lint, types, layers, proto, spelling, and the repository's own rules
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .venv/import-linter
	$(BIN)/buf lint proto
	$(BIN)/buf format --diff --exit-code proto
	$(BIN)/buf breaking proto --against tests/compatibility/golden/protocol.binpb
	$(BIN)/buf breaking proto --against tests/compatibility/golden/b2ad59b/protocol.binpb
	$(BIN)/codespell
	$(BIN)/pytest --quiet tests/tidy

check-deploy: setup ## images, compose file, manifests, unit, alerts: with the tools of those who read them
	deploy/checks/setup.sh
	deploy/checks/run.sh

check-containers: setup ## every profile of the compose file in real containers, on an engine of its own; needs root
	deploy/checks/containers/run.sh

bench: setup ## run each benchmark once, each against a server of its own
	$(BIN)/tidelog bench append
	$(BIN)/tidelog bench append --concurrency 64 --single
	$(BIN)/tidelog bench latency
	$(BENCHMARKS) txn
	$(BENCHMARKS) broadcast
	$(BENCHMARKS) msgstream
	$(BIN)/tidelog bench scan
	$(BENCHMARKS) frames
	$(BENCHMARKS) consume
	$(BIN)/tidelog bench mailbox
	$(BENCHMARKS) gazette
	$(BENCHMARKS) channels
	$(BENCHMARKS) retention --seconds 60
	$(BENCHMARKS) metadata
	$(BENCHMARKS) backup
	$(BENCHMARKS) spark
	$(BENCHMARKS) pipeline
	$(BENCHMARKS) stream
	$(BENCHMARKS) sequencer
	$(BENCHMARKS) mailbox-restart
	$(BENCHMARKS) security

proto: setup ## generate client/tidelog/v1 from proto/, the classes of errors with their page, and those of typed messages
	$(BIN)/python -m grpc_tools.protoc --proto_path=proto \
	  --python_out=client --pyi_out=client --grpc_python_out=client $(PROTOS)
	$(BIN)/python tools/make_errors.py
	$(BIN)/python tools/make_messages.py

sync: setup ## generate the synchronous twins from the asynchronous classes
	$(BIN)/python tools/make_sync.py

docs: setup ## build the documents as a site in dist/docs/html; a warning or a broken link is an error
	$(BIN)/python tools/make_docs.py

budget: setup ## write the lines of each package into tests/tidy/budget.txt, the table that bounds them
	PYTHONPATH=tests $(BIN)/python -m tidy.budget

format: setup ## format Python and proto files, and mend what ruff can mend
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format
	$(BIN)/buf format --write proto

pin: setup ## resolve the dependencies of pyproject.toml again into constraints.txt
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --fork-strategy fewest --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-annotate --python-version 3.11 --quiet \
	  --custom-compile-command "make pin" --output-file constraints.txt $(ARGS)

clean: ## remove caches and build products, not .venv and not the files of a server
	rm -rf .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache dist
	find client examples server tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Two passes: PySpark comes as a source distribution and is built by the pinned setuptools, which must be there
# first; a build in isolation would fetch one that is not pinned. --no-deps: constraints.txt is complete.
$(INSTALLED): constraints.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing. On Debian and Ubuntu:" \
	  "apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tidelog needs Python 3.11 or" \
	  "newer, and $(PYTHON) is $$($(PYTHON) --version). Name another one: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments." \
	  "On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(call stage,1,make .venv with $$($(PYTHON) --version),test -x $(BIN)/python || $(PYTHON) -m venv .venv)
	@awk '/^[^ ]/ { keep = /^setuptools==/ } keep' constraints.txt > .venv/setuptools.txt
	$(call stage,2,install setuptools; it builds PySpark,\
	  $(PIP_INSTALL) --no-deps --require-hashes --requirement .venv/setuptools.txt)
	$(call stage,3,install $$(grep -c '^[^ #]' constraints.txt) pinned packages; the first time this downloads 850 MB,\
	  $(PIP_INSTALL) --no-deps --require-hashes --no-build-isolation --use-pep517 --requirement constraints.txt)
	$(call stage,4,install Tidelog from this folder,\
	  $(PIP_INSTALL) --no-deps --no-build-isolation --editable .)
	@touch $@
