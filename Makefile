# make demo: see a polite crawl. make test: run every test. make quick: those that start nothing, in a minute.
# make docs: the documentation as a site, in docs/_build/html.
# All need Python 3.11 or later, and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TEST_VENV ?= .venv-test
SCRAPY ?=
LOWEST ?=
COMMA := ,
EXTRAS := test,deploy-test$(if $(SCRAPY)$(LOWEST),,$(COMMA)plugins-test)
# What a user can install besides: LOWEST has the lowest versions of these, too.
USERS_EXTRAS := redis,attest,completion,sign,metrics
TESTS ?= tests
# Most tests wait for a host's time: more of them run at once than there are processors. Each worker imports
# Scrapy and all tests. What they import is compiled once, before they start, also where the environment says
# otherwise: each would compile all of it.
WORKERS ?= 4

# What the package needs beside Scrapy, one a line.
OTHER_DEPENDENCIES := "import tomllib; \
	needed = tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies']; \
	print(*[each for each in needed if not each.startswith('scrapy')], sep='\n')"

# Ends with an error unless the version of each direct dependency is the lowest that is declared.
IS_LOWEST := "import importlib.metadata as m, tomllib; \
	from packaging.requirements import Requirement; \
	from packaging.version import Version; \
	project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	extras = project['optional-dependencies']; \
	needed = [*project['dependencies'], *(each for name in '$(USERS_EXTRAS)'.split(',') for each in extras[name])]; \
	floors = {r.name: next(iter(r.specifier)).version for r in map(Requirement, needed)}; \
	wrong = {name: m.version(name) for name, floor in floors.items() if Version(m.version(name)) != Version(floor)}; \
	raise SystemExit(f'not the lowest: {wrong} of {floors}' if wrong else 0)"

# What builds it, one a line.
BUILD_DEPENDENCIES := "import tomllib; \
	print('build', *tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')"
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.PHONY: demo test quick test-lowest test-policy test-scrapy lint format docs clean

demo: $(VENV)/demo.stamp
	$(BIN)/walsh demo

# On the wheel, as users have it: it is made of the sdist, and so are the tests, in a directory that has all of
# the sdist but the package. Run here, they would import the package from here, whatever is installed.
test: $(TEST_VENV)/test.stamp
	@$(TEST_VENV)/bin/python -c "import sys, scrapy; print('tests on Python', sys.version.split()[0], \
		'and Scrapy', scrapy.__version__, flush=True)"
	rm -rf build
	$(TEST_VENV)/bin/python -m build --no-isolation --outdir build . > /dev/null
	$(TEST_VENV)/bin/python $(PIP_INSTALL) --no-compile --force-reinstall --no-deps build/*.whl
	mkdir build/suite
	tar xzf build/*.tar.gz --strip-components=1 -C build/suite
	rm -r build/suite/scrapy_walsh
	cd build/suite && export PYTHONPATH= PYTHONDONTWRITEBYTECODE= && \
		{ $(abspath $(TEST_VENV))/bin/python -m pytest --collect-only -qq $(TESTS) > /dev/null || true; } && \
		$(abspath $(TEST_VENV))/bin/python -m pytest -n $(WORKERS) --dist loadfile $(TESTS)

# What starts no process and no server, and takes no second: between two edits.
quick: $(VENV)/quick.stamp
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --quick $(TESTS)

# The oldest versions that are supported, and the tests of what calls it. policy/, state/, and what reads files
# and logs know nothing of Scrapy; commands, platforms, sources, and what is broken on purpose: the newest.
ON_SCRAPY := $(addprefix tests/,conformance crawl documents fleet ledger pacing runs spiders cli/test_main.py \
	cli/test_plan.py)
ON_NEWEST := $(addprefix --ignore=tests/,conformance/test_broken.py conformance/test_lab.py \
	ledger/test_verify_forged.py)

# With the lowest version of each direct dependency (LOWEST), and `walsh conformance` besides.
test-lowest:
	$(MAKE) test TEST_VENV=.venv-lowest LOWEST=yes TESTS="$(ON_SCRAPY) $(ON_NEWEST)"
	rm -rf build/conformance && mkdir build/conformance
	cd build/conformance && $(abspath .venv-lowest)/bin/walsh conformance

# Scrapy's own tests, of the sdist of SCRAPY or of the newest, with the add-on on (tests/scrapy_suite). It takes an
# hour, and CI does not run it.
SUITE_VENV ?= .venv-scrapy
SUITE ?=
test-scrapy: $(SUITE_VENV)/suite.stamp
	WORKERS=$(WORKERS) $(SUITE_VENV)/bin/python -m tests.scrapy_suite build/scrapy $(SUITE)

# policy/ alone, where neither Scrapy nor Twisted is installed: what it decides needs neither.
test-policy: .venv-policy/policy.stamp
	.venv-policy/bin/python -c "import importlib.util as u; assert not any(map(u.find_spec, ('scrapy', 'twisted')))"
	.venv-policy/bin/python -m pytest --hypothesis-profile thorough tests/policy

lint: $(VENV)/lint.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/test_typing.py
	$(BIN)/lint-imports --no-logo --no-cache

format: $(VENV)/lint.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Nothing is fetched while it builds; each warning is an error. Sphinx and what the tests of platforms need
# want different versions of docutils, so it has an environment of its own.
docs: .venv-docs/docs.stamp
	.venv-docs/bin/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going --nitpicky docs docs/_build/html

clean:
	rm -rf .venv .venv-docs .venv-lowest .venv-newest .venv-policy .venv-scrapy .venv-scrapy-lowest .venv-test build dist docs/_build .mypy_cache .ruff_cache .hypothesis

%/bin/python:
	$(PYTHON) -m venv $*

$(VENV)/demo.stamp: $(VENV)/bin/python pyproject.toml
	@echo "installing into $(VENV): this takes a minute"
	$(BIN)/python -m pip install --disable-pip-version-check -e .
	touch $@

# The stamps are of two environments: what is edited is installed in $(VENV), a wheel in $(TEST_VENV).
$(VENV)/quick.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python $(PIP_INSTALL) -e '.[$(EXTRAS)]'
	touch $@

$(TEST_VENV)/test.stamp: $(TEST_VENV)/bin/python pyproject.toml
	$(TEST_VENV)/bin/python -c $(BUILD_DEPENDENCIES) > $(TEST_VENV)/build.txt
	$(if $(LOWEST),$(TEST_VENV)/bin/python $(PIP_INSTALL) uv)
	$(if $(LOWEST),$(TEST_VENV)/bin/python -m uv pip install --quiet --python $(TEST_VENV)/bin/python \
		--resolution lowest-direct '.[$(USERS_EXTRAS)]')
	$(TEST_VENV)/bin/python $(PIP_INSTALL) --no-compile -r $(TEST_VENV)/build.txt '.[$(EXTRAS)]' \
		$(if $(SCRAPY),'$(SCRAPY)')
	$(if $(LOWEST),$(TEST_VENV)/bin/python -c $(IS_LOWEST))
	touch $@

$(SUITE_VENV)/suite.stamp: $(SUITE_VENV)/bin/python pyproject.toml tests/scrapy_suite/requirements.txt
	$(SUITE_VENV)/bin/python $(PIP_INSTALL) -e . -r tests/scrapy_suite/requirements.txt $(if $(SCRAPY),'$(SCRAPY)')
	touch $@

.venv-policy/policy.stamp: pyproject.toml
	$(PYTHON) -m venv --clear .venv-policy
	.venv-policy/bin/python -c $(OTHER_DEPENDENCIES) > .venv-policy/requirements.txt
	.venv-policy/bin/python $(PIP_INSTALL) pytest hypothesis \
		-r .venv-policy/requirements.txt
	touch $@

.venv-docs/docs.stamp: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python $(PIP_INSTALL) -e '.[docs]'
	touch $@

$(VENV)/lint.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python $(PIP_INSTALL) -e '.[dev]'
	touch $@
