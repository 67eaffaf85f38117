# make demo    install into .venv and run the main job end to end
# make test    install into .venv and run the tests, in three processes
# make lint    style and types
# make bench   the engine's speed on this machine
# make docs    build the documentation site into build/docs/html and check it; no network once it is installed
# make clean   remove .venv and what builds leave behind
#
# PYTHON=python3.12 make test uses another interpreter; PYTEST_ARGS="tests/engine -x" make test runs a part of the tests.

PYTHON ?= python3
VENV := .venv
# Bytecode is kept, whatever the shell says: without it every process of the tests compiles its imports, torch's too, from source.
export PYTHONDONTWRITEBYTECODE :=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# Python compiles a module when it is first imported; pip would compile all of them, most of which nobody imports: a minute.
INSTALL := $(PIP) install --no-compile
PYTEST_ARGS ?=

.PHONY: demo test lint bench docs clean

demo: $(VENV)/.dev
	$(BIN)/ccenv demo

# The large kernels are compiled side by side beforehand, once for a state of their source. Three processes for two cores: tests of live
# runs, interrupts and servers wait for a quarter of their time.
test: $(VENV)/.dev
	@$(BIN)/ccenv doctor --warm >/dev/null || $(BIN)/ccenv doctor
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/ccenv bench speed

docs: $(VENV)/.docs
	$(BIN)/python docs/site/build.py --check

$(VENV)/.docs: $(VENV)/.dev constraints-docs.txt requirements-docs.lock
	@echo "ccenv: installing what the documentation site needs into $(VENV)"
	@$(INSTALL) --no-deps --require-hashes -r requirements-docs.lock && $(PIP) check \
		|| { echo "ccenv: the installation failed, see above: is the package registry reachable, is the disk full?" >&2; exit 1; }
	@touch $@

# Every file that pip fetches is compared with its hash in requirements.lock, the build backend's too. Only torch is not: which build
# of it a machine gets (with or without GPU libraries) depends on where it comes from, so its hashes are not one list; its version is
# pinned. It is the largest, so it is unpacked beside the others; what its build needs besides them comes after. The package itself has
# nothing left to fetch: as soon as it is there, its large kernels begin to compile in the background (ccenv doctor --warm).
$(VENV)/.dev: setup.cfg constraints.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "ccenv: $(PYTHON) is missing or older than Python 3.11: install one, or name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "ccenv: $(PYTHON) cannot make virtual environments: install its venv package (on Debian: python3-venv)" >&2; exit 1; }
	@echo "ccenv: installing into $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --no-deps -c constraints.txt torch & torch=$$!; \
		$(INSTALL) --no-deps --require-hashes -r requirements.lock && $(INSTALL) --no-deps --no-build-isolation -e .; locked=$$?; \
		[ $$locked != 0 ] || $(BIN)/ccenv doctor --warm >/dev/null 2>&1 & \
		wait $$torch && [ $$locked = 0 ] && $(INSTALL) -c constraints.txt torch && $(PIP) check \
		|| { echo "ccenv: the installation failed, see above: is the package registry reachable, is the disk full?" >&2; exit 1; }
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
