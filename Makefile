# Every target sets up what it needs; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# The first interpreter that is new enough and really starts; `make PYTHON=… setup` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo "$$p" && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PB_CURRENT := build/venv-protobuf-current
FLINK := build/venv-flink
# PyFlink runs on Python 3.10 to 3.12; `make FLINK_PYTHON=… flink-venv` chooses one.
FLINK_PYTHON ?= $(shell for p in python3.11 python3.12 python3.10 python3; do \
  "$$p" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' 2>/dev/null && echo "$$p" && break; done)
STACK_KAFKA_PORT ?= 9092
STACK_FLINK_PORT ?= 8081
STACK_PROMETHEUS_PORT ?= 9090
PIP := -m pip --disable-pip-version-check --quiet

PROTOS := $(wildcard proto/spanlite/v1/*.proto)
BASELINE := tests/golden/span_v1.binpb
# Modules that begin with an underscore are shared by the scripts, not run.
FIGURES := $(patsubst benchmarks/%.py,build/bench/%.json,$(filter-out benchmarks/_%.py,$(wildcard benchmarks/*.py)))
# What pytest is told beyond the settings in pyproject.toml, e.g. `make test PYTEST_ARGS='-k fold'`.
PYTEST_ARGS ?=

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-24s %s\n", $$1, $$2}' Makefile

.PHONY: setup
setup: $(INSTALLED) ## Make .venv with spanlite (editable) and all tools; quick when nothing changed

$(INSTALLED): pyproject.toml hatch_build.py core/spanlite/native/kernels.c $(wildcard agent/native/*.[ch] agent/native/counters/*.[ch] replay/native/*.[ch])
	@command -v cc >/dev/null || tests/setup-debian.sh g++ || echo "without a C compiler spanlite folds with numpy" >&2
	@test -n "$(PYTHON)" || { echo "spanlite needs Python 3.10 or newer; install python3 or pass PYTHON=…" >&2; exit 1; }
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || tests/setup-debian.sh python3-venv
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) install --editable '.[dev]'
	@touch $@

.PHONY: native
native: ## Build the collector that traced programs load, the agent's counters library and the replay's for GPUs (needs gcc)
	$(MAKE) --no-print-directory -C agent/native
	$(MAKE) --no-print-directory -C agent/native/counters
	$(MAKE) --no-print-directory -C replay/native

.PHONY: demo
demo: setup ## Recorded H200 serving run through the whole pipeline, in the terminal
	$(BIN)/spanlite demo $(DEMO_ARGS)

.PHONY: debian
debian:
	@tests/setup-debian.sh prometheus g++ openjdk-17-jre-headless maven

.PHONY: test
test: setup debian flink-venv ## All tests
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

.PHONY: coverage
coverage: ## All tests with a coverage report; tracing takes twice the time
	$(MAKE) --no-print-directory test PYTEST_ARGS="--cov --cov-report=xml:build/coverage.xml --cov-report=term:skip-covered $(PYTEST_ARGS)"

.PHONY: soak
soak: setup debian flink-venv ## The tests that take too long for every change
	$(BIN)/python -m pytest -m soak $(PYTEST_ARGS)

.PHONY: check
check: setup ## Lint, format, types, layers, protobuf; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd proto && $(abspath $(BIN))/buf lint
	cd proto && $(abspath $(BIN))/buf format --diff --exit-code >/dev/null || { echo "run: make format" >&2; exit 1; }

.PHONY: format
format: setup ## Format the Python and the .proto files in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cd proto && $(abspath $(BIN))/buf format --write

.PHONY: bench
bench: $(FIGURES) ## All benchmarks: tables on the terminal, figures in build/bench/*.json

# Figures are of one machine and one moment: each run measures again.
.PHONY: $(FIGURES)
$(FIGURES): build/bench/%.json: benchmarks/%.py setup
	@mkdir -p $(@D)
	SPANLITE_RECORDINGS="$${SPANLITE_RECORDINGS:-tests/data}" $(BIN)/python $< --json $@

# Not part of `make bench`: the first build takes minutes, and needs Go.
.PHONY: bench-otel
bench-otel: setup ## OpenTelemetry Collector's span_metrics beside ours, on the same spans; needs Go
	@command -v go >/dev/null || { echo "the collector is built with Go 1.26 or newer; install it" >&2; exit 1; }
	cd benchmarks/otel_collector && go build -trimpath -o $(abspath build/otel-collector)/otel-collector .
	@mkdir -p build/bench
	$(BIN)/python benchmarks/otel_collector/bench.py --json build/bench/otel_collector.json

.PHONY: proto
proto: setup ## Regenerate proto/spanlite/v1/*_pb2.py and .pyi from the .proto files
	$(BIN)/python -m grpc_tools.protoc --proto_path=proto --python_out=proto --pyi_out=proto $(PROTOS)

.PHONY: docs
docs: setup ## Regenerate the pages in docs/ that are made from code
	$(BIN)/python -m spanlite.contract.catalogue > docs/metrics.md

.PHONY: proto-baseline
proto-baseline: setup ## Freeze today's .proto files as what later ones must stay compatible with
	cd proto && $(abspath $(BIN))/buf build --exclude-source-info --output $(abspath $(BASELINE))

# Our generated code is protobuf 5.29's; whoever installs spanlite today gets the current release, so it runs there too.
.PHONY: test-protobuf-current
test-protobuf-current: $(PB_CURRENT)/.installed ## Contract tests on the current protobuf release
	$(PB_CURRENT)/bin/python -m pytest tests/contract tests/architecture/test_proto.py -o addopts="--import-mode=importlib" -p no:cacheprovider

$(PB_CURRENT)/.installed: pyproject.toml | $(INSTALLED)
	test -x $(PB_CURRENT)/bin/python || $(PYTHON) -m venv $(PB_CURRENT)
	$(PB_CURRENT)/bin/python $(PIP) install 'protobuf>=7' numpy zstandard pycxxfilt pytest pytest-timeout hypothesis
	@touch $@

.PHONY: jars
jars: setup debian ## Fetch the jars of pipeline/pom.xml (Kafka, Flink's connectors); nothing when they are current
	@$(BIN)/python -m tests.stack.jars

.PHONY: flink-venv
flink-venv: $(FLINK)/.installed ## Make build/venv-flink with PyFlink and spanlite (editable), for the stream jobs

$(FLINK)/.installed: pyproject.toml
	@test -n "$(FLINK_PYTHON)" || { echo "PyFlink needs Python 3.10 to 3.12; install one or pass FLINK_PYTHON=…" >&2; exit 1; }
	test -x $(FLINK)/bin/python || $(FLINK_PYTHON) -m venv $(FLINK)
	$(FLINK)/bin/python $(PIP) install --editable '.[flink]'
	@touch $@

.PHONY: stack
stack: jars flink-venv ## Kafka, Flink and Prometheus on loopback, as daemons (docs/stack.md)
	@$(BIN)/python -m tests.stack.local up --kafka-port $(STACK_KAFKA_PORT) --flink-port $(STACK_FLINK_PORT) --prometheus-port $(STACK_PROMETHEUS_PORT)

.PHONY: stack-down
stack-down: setup ## Stop what `make stack` started; data and logs stay
	@$(BIN)/python -m tests.stack.local down

# The stack stays up when the demo ends: `make demo-cluster` again starts in seconds.
.PHONY: demo-cluster
demo-cluster: stack ## The same run through Kafka, Flink and Prometheus on this machine, until Ctrl-C
	@$(BIN)/python -m tests.stack.demo $(DEMO_ARGS)

.PHONY: clean
clean: ## Remove everything that can be made again
	@test ! -e build/stack/run/daemons.json || $(BIN)/python -m tests.stack.local down
	rm -rf $(VENV) build dist coverage.xml .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
