# Everything starts from a bare Python 3.11 and make: each target sets up .venv when it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_WORKERS ?= 2
# A folder with data beside the project, if there is one, is searched before the user's own.
ifneq ($(wildcard ../shared/data),)
export GATELAB_DATA := $(if $(GATELAB_DATA),$(GATELAB_DATA):)$(abspath ../shared/data)
endif

.PHONY: help data demo test test-slow attacks lint format bench house api support pictures results notebooks docs wheel web \
	web-packages web-golden clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gatelab needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,cluster]'
	@touch $@

data: $(STAMP)  ## fetch the data sets that the tests use into data/
	$(BIN)/gatelab data fetch mnist
	$(BIN)/gatelab data fetch fashion-mnist

demo: $(STAMP)  ## install, then study a small network: how much of what it knows is in its gates?
	$(BIN)/gatelab study --out runs/demo

test: $(STAMP)  ## install, then run the fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) -m 'not slow'

test-slow: $(STAMP)  ## the tests that take long
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) -m slow

attacks: $(STAMP)  ## every attack, the long ones too, and the table of what succeeded
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) tests/attacks

lint: $(STAMP)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

format: $(STAMP)  ## put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## speed and memory as ratios against a peer and a bound
	$(BIN)/python -m benchmarks

house: $(STAMP)  ## draw the packages, their sizes and imports: docs/house.svg
	$(BIN)/python -m tools.house

api: $(STAMP)  ## list the public names: docs/api.md
	$(BIN)/python -m tools.api

support: $(STAMP)  ## try networks that others wrote: docs/support.md; NETWORKS="a b" tries these again
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.support $(NETWORKS)

pictures: $(STAMP)  ## draw the pictures of docs/understand
	$(BIN)/python -m tools.pictures

results: $(STAMP)  ## fill the tables of docs/results from the records of published runs
	$(BIN)/python -m tools.published

notebooks: $(STAMP)  ## make examples/*.ipynb of examples/*.py, and run them
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.notebooks

docs: $(STAMP)  ## build the site, docs/_build/html; a warning is an error
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

wheel: $(STAMP)  ## build sdist and wheel into dist/, and try the wheel in an empty environment
	$(BIN)/python -m tools.wheel

# Node comes as a wheel with the development tools; npm's packages are pinned by web/package-lock.json.
NODE = $(shell $(BIN)/python -m tools.node)

web/node_modules/.installed: web/package.json web/package-lock.json | $(STAMP)
	cd web && "$(NODE)/bin/node" "$(NODE)/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

web-packages: web/node_modules/.installed  ## fetch what building and testing the pages needs, into web/node_modules

web: $(STAMP) web/node_modules/.installed  ## build the pages of web/ into src/gatelab/web, after checking types and engine
	cd web && "$(NODE)/bin/node" node_modules/typescript/bin/tsc --noEmit
	cd web && "$(NODE)/bin/node" --test 'tests/*.test.ts'
	cd web && "$(NODE)/bin/node" build.ts

web-golden: $(STAMP)  ## write what the library computes, for the tests of the pages' engine
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.playground_golden

clean:  ## remove what the other targets made
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist build docs/_build docs/generated web/node_modules
