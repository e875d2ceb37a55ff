# Everything a newcomer needs. Each command sets itself up first; a second run downloads nothing.
PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

.PHONY: help setup lock
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

.venv/.ready: requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "virt-admit needs Python 3.11 or newer; set PYTHON=… to one" >&2; exit 2; }
	@$(PYTHON) -m venv .venv || { echo "cannot make a virtual environment: install your system's python3-venv package" >&2; exit 2; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

## make setup     the virtual environment .venv, with .venv/bin/virt-admit
setup: .venv/.ready

## make lock      resolve the dependencies anew
lock: .venv/.ready
	$(BIN)/pip install --quiet uv
	$(UV) --all-extras pyproject.toml -o requirements.lock
	$(UV) --all-extras --group dev pyproject.toml -o requirements-dev.lock
