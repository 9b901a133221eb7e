# Needs Python >= 3.11 with pip, make and git; everything else is installed into .venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

DEMO := zb-1.5b-p8-m24
MODEL := schedopt.executor.models:transformer

.DEFAULT_GOAL := help
.PHONY: help venv demo test lint format benchmark build clean

help:
	@echo "make demo       solve a published problem to proven optimality, compare it, draw it;"
	@echo "                measure a small transformer, solve it, train it on 4 processes"
	@echo "make test       run the tests"
	@echo "make lint       check style and types"
	@echo "make format     put the code into the project's style"
	@echo "make benchmark  print the benchmark tables"
	@echo "make build      build the wheel and the source distribution into dist/"
	@echo "make venv       only install; make clean removes everything that was made"

venv: $(READY)

# pip works on the environment from outside, so that it need not have its own.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or later is \
	needed, this is ' + sys.version.split()[0] + '; make PYTHON=... chooses another')"
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --constraint constraints.txt \
		hatchling editables
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --constraint constraints.txt \
		--no-build-isolation --editable ".[dev,plot,browser,executor]"
	@touch $(READY)

demo: $(READY)
	@mkdir -p out
	$(BIN)/schedopt solve $(DEMO) --output out/$(DEMO).json
	$(BIN)/schedopt compare out/$(DEMO).json
	$(BIN)/schedopt show out/$(DEMO).json
	$(BIN)/schedopt profile $(MODEL) --devices 4 --capacity 3MiB --output out/problem.json
	$(BIN)/schedopt solve out/problem.json --time-limit 3 --output out/best.json
	$(BIN)/schedopt run out/best.json --model $(MODEL) --check

test: $(READY)
	$(BIN)/python -m pytest -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(READY)
	$(BIN)/python benchmarks/graph.py
	$(BIN)/python benchmarks/solver.py

build: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

clean:
	rm -rf $(VENV) build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
