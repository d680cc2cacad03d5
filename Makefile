# make demo: see a polite crawl. make test: run every test. Both need Python 3.11 or later, and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SCRAPY ?=
TESTS ?= tests
# Most tests wait for a host's time: more of them run at once than there are processors.
WORKERS ?= 4

.PHONY: demo test test-lowest lint format clean

demo: $(VENV)/demo.stamp
	$(BIN)/walsh demo

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(TESTS)

# The oldest Scrapy that is supported, and the tests of what calls it. policy/, state/, and what reads files
# and logs know nothing of Scrapy; commands, platforms, sources, and what is broken on purpose: the newest.
ON_SCRAPY := $(addprefix tests/,conformance crawl documents fleet ledger pacing runs spiders cli/test_main.py \
	cli/test_plan.py)
ON_NEWEST := $(addprefix --ignore=tests/,conformance/test_broken.py conformance/test_lab.py \
	ledger/test_verify_forged.py)

test-lowest:
	$(MAKE) test VENV=.venv-lowest SCRAPY="scrapy==2.13.4" TESTS="$(ON_SCRAPY) $(ON_NEWEST)"

lint: $(VENV)/lint.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

format: $(VENV)/lint.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-lowest build dist .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/test.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,deploy-test]' $(if $(SCRAPY),'$(SCRAPY)')
	touch $@

$(VENV)/lint.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@
