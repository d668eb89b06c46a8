# Needs python3 (3.11 or later) and make. Everything else goes into .venv, from hashed requirements.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# Containers often forbid Python to write .pyc files; every process would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: help run test check fix bench chaos lock clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

run: .venv/.run ## serve on SQLite; settings come from the environment (PORT, DB_PATH, ...)
	@exec $(BIN)/ackbox serve $(ARGS)

test: .venv/.test ## run every test except chaos
	$(BIN)/pytest -n auto --maxprocesses 8 --dist worksteal -m "not serial and not chaos" $(ARGS)
	$(BIN)/pytest -m "serial and not chaos" $(ARGS) || test $$? -eq 5 # ARGS may select none of these

check: .venv/.test ## check lint, types, layers and the fast tests, in under a minute
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n auto --maxprocesses 8 -m "not serial and not chaos" tests/unit tests/arch

fix: .venv/.test ## format, and fix what ruff can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/.bench ## measure against the baselines
	@exec $(BIN)/python -m bench $(ARGS)

chaos: .venv/.test ## test kills, full disks and power cuts: takes long, some of it needs root
	$(BIN)/pytest -m chaos tests/chaos $(ARGS)
	$(if $(ARGS),,INSTALLED_POSTGRES=1 $(BIN)/pytest -n auto -k postgres tests/contract)

lock: .venv/.uv ## pin the requirements again (ARGS=--upgrade for newer versions)
	$(COMPILE) requirements/uv.in -o requirements/uv.txt
	$(COMPILE) requirements/build.in -o requirements/build.txt
	$(COMPILE) pyproject.toml -o requirements/run.txt
	$(COMPILE) pyproject.toml --extra crypto --extra postgres --extra redis -c requirements/run.txt \
	  -o requirements/image.txt
	$(COMPILE) pyproject.toml requirements/build.in requirements/test.in \
	  -c requirements/run.txt -c requirements/build.txt -o requirements/test.txt
	$(COMPILE) requirements/bench.in -c requirements/test.txt -o requirements/bench.txt

clean: ## remove what make and the tools created; databases stay
	rm -rf .venv .*_cache .hypothesis .schemathesis .bench .coverage* htmlcov dist

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --custom-compile-command "make lock" $(ARGS)

# uv is only a faster pip here: where it is not available, pip installs the same hashes.
install = { test -x $(BIN)/uv && $(BIN)/uv pip install --quiet --python $(BIN)/python $(1); } \
  || $(PIP) install $(1)

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ackbox needs Python 3.11 or later; try: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module; on Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "setting up .venv, once"
	@$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.uv: .venv/.made requirements/uv.txt
	@$(PIP) install --require-hashes -r requirements/uv.txt || echo "no uv here, going on with pip"
	@touch $@

# A stamp for each set, so that a second call does nothing until its requirements change.
.venv/.run: .venv/.uv pyproject.toml requirements/build.txt requirements/run.txt
	@$(call install,--require-hashes -r requirements/build.txt -r requirements/run.txt)
	@$(call install,--no-deps --no-build-isolation --editable .)
	@touch $@

.venv/.test: .venv/.run requirements/test.txt
	@$(call install,--require-hashes -r requirements/test.txt)
	@touch $@

.venv/.bench: .venv/.test requirements/bench.txt
	@$(call install,--require-hashes -r requirements/bench.txt)
	@touch $@
