# Two commands for a new user: `make demo` and `make test`. Nothing but Python ≥ 3.11, pip and make is needed before.
# With TORCH=cpu the first of them installs PyTorch's CPU build (0.2 GB) in the place of PyPI's with CUDA (2.7 GB).
PYTHON ?= python3
BIN := .venv/bin
CONSTRAINTS := constraints.txt
PIP := pip install --quiet --disable-pip-version-check
INSTALL = $(BIN)/$(PIP) --constraint $(CONSTRAINTS)
CPU_INDEX ?= https://download.pytorch.org/whl/cpu
ifeq ($(TORCH),cpu)
    INSTALL_TORCH = $(INSTALL) --no-deps --index-url $(CPU_INDEX) torch
else ifneq ($(TORCH),)
    $(error TORCH=$(TORCH) is not known; leave it out, or say TORCH=cpu)
endif

GPU_TESTS := $(wildcard tests/test_*gpu*.py tests/test_triton*.py) tests/test_ragged.py tests/test_device_preprocessing.py \
    tests/test_recordable.py tests/test_program.py tests/test_encoder_program.py

# An environment that a recipe makes anew, and what the tests need in it. The target sets BIN.
define NEW_ENVIRONMENT
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("pta needs Python 3.11 or newer; make PYTHON=python3.12 names another one")'
	$(PYTHON) -m venv --clear $(dir $(BIN))
endef
define INSTALL_DEV
	$(INSTALL_TORCH)
	$(INSTALL) --editable '.[dev]'
	$(INSTALL) --no-deps 'open_clip_torch>=3.0'  # it asks for torchvision, which has no build beside a CPU torch
	$(INSTALL) --no-deps 'openapi-python-client>=0.29'  # it asks for an older typer, and works with this one
endef

.PHONY: demo test test-all test-crash test-soak test-fuzz test-serve-fuzz test-gpu test-kills test-settings check docs format benchmark tables train-embedded train-embedded-points clean
.PHONY: build check-dist try-wheel oldest test-oldest test-newest check-workflows check-citation real-weights release-check release check-tag

demo: .venv/installed
	$(BIN)/pta demo --replace

# PYTEST="-n 8 --random-order" adds options.
test: .venv/installed-dev
	$(BIN)/pytest -n auto --dist loadfile $(PYTEST)

# The same, what is marked extensive (many seeds, all methods with all settings, attacks), and test-settings.
test-all: .venv/installed-dev
	PTA_TEST_EFFORT=1 PTA_TEST_GPUS="80 90" $(BIN)/pytest -n auto --dist loadfile -m ""  # GPU kernels compiled for two generations
	$(MAKE) test-settings

# The tests that numbers decide, as on other machines: threads, instructions, memory, without numba.
test-settings: .venv/installed-dev
	$(BIN)/python tests/other_machines.py

# What only a GPU can show; elsewhere these tests are skipped.
test-gpu: .venv/installed-dev
	$(BIN)/pytest -m "" $(GPU_TESTS)

test-kills: .venv/installed-dev
	PTA_KILLS=200 PTA_CLUSTER_KILLS=20 $(BIN)/pytest -m "" tests/test_kills.py tests/test_cluster_ray.py

# Kills the journal's process 1,000 and the whole service 200 times.
test-crash: .venv/installed-dev
	PTA_CRASHES=1000 $(BIN)/pytest tests/test_serve_journal_crash.py
	PTA_CRASHES=200 PTA_CRASH_TABLE=benchmarks/results/serve-crash.csv $(BIN)/pytest tests/test_serve_crash.py

# 200,000 samples through a service, whose memory must not grow.
test-soak: .venv/installed-dev
	PTA_SOAK=200000 $(BIN)/pytest -s tests/test_serve_soak.py

# Hundreds of damaged files, states and samples of every kind, others each time; PTA_FUZZ is the number of each file.
test-fuzz: .venv/installed-dev
	PTA_FUZZ=500 HYPOTHESIS_PROFILE=thorough $(BIN)/pytest -n auto tests/test_fuzz.py

# 10,000 requests made from the OpenAPI document of the service, and 100,000 mutated bodies; `make test` has some hundreds.
test-serve-fuzz: .venv/installed-dev
	PTA_HTTP_FUZZ=10000 PTA_BODY_FUZZ=100000 $(BIN)/pytest tests/test_serve_http_fuzz.py

check: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

benchmark: .venv/installed-dev
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/encode.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/methods.py

# The documentation as a site, in site/. A broken link ends it.
docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The tables and numbers of README.md and docs, from the CSV files that hold them.
tables: .venv/installed
	$(BIN)/python benchmarks/fill_tables.py

# Needs the four .gz files of Fashion-MNIST in data/ (Debian: package dataset-fashion-mnist).
train-embedded: .venv/installed
	$(BIN)/python training/embedded.py --data data --out src/pta/assets/embedded.safetensors

# Needs training/carried/furniture.npz, which training/furniture.py makes.
train-embedded-points: .venv/installed
	$(BIN)/python training/embedded_points.py

# The wheel and the sdist, in dist. The wheel is made from the sdist.
build: .venv-tools/installed
	rm -rf dist
	.venv-tools/bin/python -m build --outdir dist

check-dist: build
	.venv-tools/bin/twine check --strict dist/*
	$(PYTHON) releasing/distributions.py dist

# The wheel alone, in an environment and a folder of its own: the demo, the README's Python, the first hour, the notebooks.
try-wheel: BIN := .venv-wheel/bin
try-wheel: build
	$(NEW_ENVIRONMENT)
	$(INSTALL_TORCH)
	$(INSTALL) "$$(ls dist/*.whl)[figures]" nbclient ipykernel  # the last two run notebooks
	$(BIN)/python -P releasing/try_wheel.py

# The lowest versions that pyproject.toml allows, as a file of constraints.
oldest:
	$(PYTHON) releasing/oldest.py

# The kernels for GPUs need the newest Triton, whose interpreter runs them; their tests are left out.
test-oldest: BIN := .venv-oldest/bin
test-oldest: CONSTRAINTS := constraints-oldest.txt
test-oldest:
	$(NEW_ENVIRONMENT)
	$(INSTALL_DEV)
	$(BIN)/pytest -n auto --dist loadfile $(addprefix --ignore=,$(GPU_TESTS)) $(PYTEST)

test-newest: BIN := .venv-newest/bin
test-newest: CONSTRAINTS := /dev/null
test-newest:
	$(NEW_ENVIRONMENT)
	$(INSTALL_DEV)
	$(BIN)/pytest -n auto --dist loadfile $(PYTEST)

check-workflows: .venv-tools/installed
	.venv-tools/bin/zizmor --offline .github

check-citation: .venv-tools/installed
	.venv-tools/bin/cffconvert --validate

# CLIP and SigLIP with real weights on DTD and Pets, which it downloads (3 GB). It has never run.
real-weights: .venv/installed-dev
	$(BIN)/python releasing/real_weights.py data/real

# Every step of the jobs on Linux that PyPI alone can serve, with one Python. Nothing is published.
release-check: check test docs check-dist try-wheel check-workflows check-citation test-oldest test-newest
	@echo "release-check: passed with $$($(PYTHON) --version)"

# Fills in the date, commits and tags; nothing is sent. VERSION=0.1.0 may say which version is meant.
release:
	@$(PYTHON) releasing/release.py $(VERSION)

# In the workflow of a release: whether the tag is this version, with its date.
check-tag:
	@$(PYTHON) releasing/release.py --tag "$$GITHUB_REF_NAME"

.venv-tools/installed: releasing/requirements.txt
	$(PYTHON) -m venv .venv-tools
	.venv-tools/bin/$(PIP) --requirement releasing/requirements.txt
	touch $@

.venv/bin/pip:
	$(NEW_ENVIRONMENT)

.venv/installed: .venv/bin/pip pyproject.toml constraints.txt
	$(INSTALL_TORCH)
	$(INSTALL) --editable .
	touch $@

.venv/installed-dev: .venv/bin/pip pyproject.toml constraints.txt
	$(INSTALL_DEV)
	touch .venv/installed $@

clean:
	rm -rf .venv .venv-* dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache site demo-report.html
