# Needs Python >= 3.11 and make; everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
export MPLBACKEND := Agg

.PHONY: demo test test-all check format docs tables bench clean install
.DEFAULT_GOAL := test

install: $(STAMP)

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "carom needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/carom demo --out demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not campaign"

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "docs/_build/index.html"

tables: $(STAMP)
	$(BIN)/python -m docs.tables

bench: $(STAMP)
	$(BIN)/carom bench --out benchmarks/results/speed.json --overwrite
	$(BIN)/python -m docs.tables

clean:
	rm -rf .venv build dist demo .pytest_cache .ruff_cache .hypothesis
