# Each target does its own set-up: 'make demo' and 'make check' work in a fresh clone with nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORK ?= build
JOBS ?= 2
DEMO := $(WORK)/demo
EXAMPLE := docs/examples/diffusion

# The tests start several hundred processes; each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check quick format lint types types-package types-tests layers prose test slow cluster cuda docs wheel bench clean
.DEFAULT_GOAL := check

# The interpreter's name may differ, and a virtual environment made by one that is too old helps nobody: say so first.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "einturnip needs Python 3.11 or newer; name one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@ $(VENV)/.demo

# Real data, a matrix six times larger than the memory allowed, and NumPy as the judge of the answer.
demo: $(VENV)/.demo
	$(BIN)/python $(EXAMPLE)/prepare.py $(DEMO)
	$(BIN)/einturnip run $(EXAMPLE)/diffusion.ein -i X=$(DEMO)/digits.npy -o D=$(DEMO)/diffusion.npy --spill $(DEMO) --memory 192MiB
	$(BIN)/python $(EXAMPLE)/verify.py $(DEMO)
	@echo "This leaves $$(du -sh $(DEMO) | cut -f1) in $(DEMO) and the packages in $(VENV); to remove them: rm -rf $(DEMO) $(VENV)"

STATIC := types-package types-tests format lint layers prose

# The one gate; CI runs it too. All but the tests are single processes, JOBS of which run side by side.
check: $(VENV)/.dev
	$(MAKE) --no-print-directory --jobs=$(JOBS) --output-sync=target $(STATIC) docs wheel
	$(MAKE) --no-print-directory test
	@echo "make check: all passed"

# For the time between two edits: the static checks, and the folders whose tests take a few milliseconds each.
QUICK := tests/ir tests/lang tests/language tests/oracle
quick: $(VENV)/.dev
	$(MAKE) --no-print-directory --jobs=$(JOBS) --output-sync=target $(STATIC)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not gpu and not slow" $(QUICK)
	@echo "make quick: all passed"

format: $(VENV)/.dev
	$(BIN)/ruff format --check .

lint: $(VENV)/.dev
	$(BIN)/ruff check .

types: types-package types-tests

types-package: $(VENV)/.dev
	$(BIN)/mypy

# Its options are others, and so is its cache: in a common one, each run would discard what the other found.
types-tests: $(VENV)/.dev
	$(BIN)/mypy --config-file tests/mypy.ini tests

layers: $(VENV)/.dev
	$(BIN)/lint-imports

# Counts of wording that is to go may only fall; tests/prose_counts.json stores them.
prose: $(VENV)/.dev
	$(BIN)/python tests/prose_check.py

# JOBS processes side by side. Each starts with a half of the tests, file by file, and the first to finish takes tests of
# the other: with whole files, the largest ones came last and left a core without work.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not gpu and not slow"

CUDA := tests/kernels/cuda/test_compiled.py tests/kernels/cuda/test_counts.py tests/devices/test_generated_source.py

# The long variants, which 'check' leaves out, and the drawn tests with all examples, of which 'check' draws a quarter;
# those for CUDA are under 'cuda'.
slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "(slow or hypothesis) and not gpu" --hypothesis-profile=full $(addprefix --ignore=,$(CUDA))

# All runs on worker processes; 'check' runs those that are not slow.
cluster: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not gpu" --hypothesis-profile=full --durations=10 tests/cluster

# Every CUDA source that the tests' programs make, compiled for each architecture; every program run with its sources as
# C++, as C++ with a check of each access, and by NVRTC's PTX; all counts of kernels. 'check' takes a sample of each.
cuda: $(VENV)/.dev
	$(BIN)/python -m pytest -s -m slow tests/kernels/cuda/test_compiled.py
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m slow tests/devices/test_generated_source.py tests/kernels/cuda/test_counts.py

# The examples on the pages are run by tests/test_docs.py, under 'test'; those of clusters.md, which start workers, under 'slow'.
docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict --config-file .mkdocs.yml --site-dir $(abspath $(WORK))/site

# The wheel is used from an empty folder, where nothing of the checkout can be found by accident.
wheel: $(VENV)/.dev
	rm -rf $(WORK)/wheel && mkdir -p $(WORK)/wheel/empty
	$(BIN)/python -m pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir $(WORK)/wheel
	$(BIN)/python -m pip install --quiet --no-deps --target $(WORK)/wheel/site $(WORK)/wheel/*.whl
	cd $(WORK)/wheel/empty && PYTHONPATH=../site $(abspath $(BIN))/python -P $(CURDIR)/tests/wheel_check.py $(CURDIR)

clean:
	rm -rf build dist site
