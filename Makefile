# Python 3.11 to 3.13, git and make are all that is needed. Everything is installed into .venv.

VENV := .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest
# Neighbouring tests stay on one worker and share its servers; whoever is done takes half of another's rest.
# Three workers for two cores: much of the time a test waits for a process.
CORES := $(shell nproc 2>/dev/null || echo 2)
WORKERS ?= $(shell echo $$(( ($(CORES) * 3 + 1) / 2 )))
DIST := --dist worksteal
# What a round used of the processors, which is what it waits for.
HEAVIEST := --cpu-seconds=25
PARALLEL = -n $(WORKERS) $(DIST)
# More words for the command: make test ARGS="-k question", make up ARGS=--help
ARGS ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
# Images of containers often set it; then each of the many processes compiles every module anew.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help up needs-git test test-long test-fast test-postgres lint audit no-conflict-markers pictures bench soak lock wheel environment clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: needs-git $(VENV)/.installed ## install what is needed, start the portal and print its address
	@exec $(VENV)/bin/cat-herder up $(ARGS)

needs-git:
	@command -v git >/dev/null || { echo "Cat Herder needs git and finds none. On Debian and Ubuntu: apt install git" >&2; exit 1; }

# Both databases at once: while the tests of one wait, those of the other use the processors. pytest ends with
# 5 if ARGS chose nothing.
define RING
@export CATHERDER_TEST_RING=$(1); status=0; report=$$(mktemp); trap 'rm -f "$$report"' EXIT; \
	CATHERDER_TEST_DATABASE=postgres $(PYTEST) -n $(2) $(DIST) $(HEAVIEST) -m django_db $(ARGS) >"$$report" 2>&1 & \
	$(PYTEST) -n $(3) $(DIST) $(HEAVIEST) $(ARGS) || [ "$$?$(if $(ARGS),,!)" = 5 ] || status=1; \
	wait $$! || [ $$? = 5 ] || status=1; \
	echo "── On PostgreSQL:"; cat "$$report"; exit $$status
endef

test: $(VENV)/.installed-dev ## the tests that this machine can run in some minutes; says what is skipped and why
	$(call RING,test,1,$(WORKERS))

test-long: $(VENV)/.installed-dev ## what takes longer: crash points, worker hosts, proxies, packages, the rest on PostgreSQL
	$(call RING,long,$(CORES),$(WORKERS))

# Services that need neither git nor a process. What needs one is left to `make test`.
FAST = tests/unit $(patsubst %,tests/integration/test_%.py,services_tasks audit verdicts events_logs \
	notifications question_order threshold_change)
test-fast: $(VENV)/.installed-dev ## unit tests and tests of services, while you work
	@$(PYTEST) $(PARALLEL) -q $(FAST) $(ARGS)

test-postgres: $(VENV)/.installed-dev ## the tests that use the database, on PostgreSQL (CATHERDER_TEST_POSTGRES)
	@CATHERDER_TEST_DATABASE=postgres $(PYTEST) $(PARALLEL) -m django_db $(ARGS) || [ $$? = 5 ]

lint: no-conflict-markers $(VENV)/.installed-dev ## style, types, layers, migrations, lock files
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(VENV)/bin/djade --check --target-version 5.2 $$(git ls-files 'templates/*.html')
	$(PY) -m mypy
	$(VENV)/bin/lint-imports
	CATHERDER_DATA_DIR=$(VENV)/lint-data $(PY) manage.py makemigrations --check --dry-run
	$(PYTEST) -q tests/unit/test_lock_files.py

audit: $(VENV)/.installed-dev ## known vulnerabilities of the locked packages (needs the network; says so without it)
	@$(PY) -m tests.audit

# git grep ends with 1 if it found nothing, and with more if it cannot look.
no-conflict-markers:
	@git grep -nIE '^(<{7}|>{7})( |$$)'; [ $$? = 1 ] || { echo "Resolve these conflicts of a merge." >&2; exit 1; }

pictures: $(VENV)/.installed-dev ## the pictures in docs/, from a portal in rehearsal (needs Chromium)
	$(PY) -m tests.e2e.pictures

bench: $(VENV)/.installed-dev ## the figures of this machine: medians with spread (needs Chromium; some minutes; JSON=file for all samples)
	@$(PY) -m tests.bench $(if $(JSON),--json "$(JSON)") $(ARGS)

soak: $(VENV)/.installed-dev ## kill web server, worker and agents at random and count what is lost (ARGS="--cycles 200 --seed 1")
	@$(PY) -m tests.soak $(ARGS)

wheel: $(VENV)/.installed-dev ## the package in dist/
	rm -rf dist
	$(PY) -m pip wheel --disable-pip-version-check --quiet --no-deps --no-build-isolation --wheel-dir dist .

environment: $(VENV)/.installed-dev ## .venv with what development needs

# What is locked stays locked unless pyproject.toml forbids it; ARGS=--upgrade takes the newest.
LOCK := uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-emit-index-url \
	--no-emit-find-links --no-header --no-annotate $(ARGS)
lock: ## write the lock files anew from pyproject.toml (needs the network)
	@set -e; tools=$$(mktemp -d); trap 'rm -rf "$$tools"' EXIT; \
	$(PY) -m venv "$$tools"; "$$tools/bin/pip" install --quiet --disable-pip-version-check uv; \
	PATH="$$tools/bin:$$PATH"; echo 'hatchling>=1.27' > "$$tools/build.in"; \
	$(LOCK) pyproject.toml "$$tools/build.in" -o requirements.lock; \
	$(LOCK) --extra dev -c requirements.lock pyproject.toml "$$tools/build.in" -o requirements-dev.lock

clean: ## remove .venv and caches; data/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist *.egg-info
	find catherder_site tasks_app tests -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.installed: requirements.lock pyproject.toml
	@sh -euc "$$INSTALL" install requirements.lock
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock pyproject.toml
	@sh -euc "$$INSTALL" install requirements-dev.lock
	@touch $(VENV)/.installed $@

# $1 is the lock file. An installation that was interrupted is begun again: half a package cannot be told
# from a whole one.
define INSTALL
right='import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'
if [ -e $(VENV)/.unfinished ] || ! $(PY) -c "$$right" 2>/dev/null || ! $(PY) -m pip --version >/dev/null 2>&1; then
    python=
    for name in $(PYTHON) python3 python3.13 python3.12 python3.11 python; do
        if "$$name" -c "$$right" 2>/dev/null; then python=$$name; break; fi
    done
    if [ -z "$$python" ]; then
        echo "Cat Herder needs Python 3.11 to 3.13 and finds $$(python3 --version 2>/dev/null || echo none)." >&2
        echo "Install one, or name it: make up PYTHON=/path/to/python3" >&2
        exit 1
    fi
    if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "$$("$$python" --version) cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv" >&2
        exit 1
    fi
    echo "Making $(VENV) with $$("$$python" --version)."
    "$$python" -m venv --clear $(VENV)
fi
touch $(VENV)/.unfinished
echo "Installing what $$1 lists. The agent program alone has 170 MB: the first time this takes a minute or more."
$(PY) -m pip install --disable-pip-version-check --no-input --require-hashes -r "$$1"
$(PY) -m pip install --disable-pip-version-check --no-input --quiet --no-deps --no-build-isolation -e .
rm $(VENV)/.unfinished
endef
export INSTALL
