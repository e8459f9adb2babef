# Two commands are enough on a fresh machine with Python 3.11 or newer: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow style quality benchmark clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamp is newer than pyproject.toml exactly when the environment fits it.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,quality]'
	@touch $@

demo: $(VENV)/.installed  ## train five small ViTs, measure them, write runs/demo/report.html (some minutes)
	$(BIN)/python scripts/demo.py

test: $(VENV)/.installed  ## the tests that need no network, no accelerator and no patience
	$(BIN)/python -m pytest -m "not slow and not gpu and not hub and not browser and not network"

test-slow: $(VENV)/.installed  ## the slow tests (all of them; SLOW="..." passes pytest options)
	$(BIN)/python -m pytest -m "slow and not gpu and not browser and not network" $(SLOW)

style: $(VENV)/.installed  ## format and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

quality: $(VENV)/.installed  ## lint, format and types, without changing anything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmark: $(VENV)/.installed  ## time our parts against what one would use instead, as ratios
	$(BIN)/python scripts/benchmark.py

clean:  ## remove the environment, caches and runs
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache runs build dist *.egg-info
