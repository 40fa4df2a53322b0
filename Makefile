# Every target makes the virtual environment it needs; a change of pyproject.toml renews it.
SHELL := /bin/bash
VENV := .venv
READY := $(VENV)/.ready
PYTEST_ARGS ?= -q -n 3

# The first Python that runs and is new enough; `make PYTHON=... test` chooses another. The interpreter
# behind it is used, so that a version manager's shim does not end up in the environment.
CANDIDATES := python3.11 python3.12 python3.13 python3
ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: help demo test check clean

help:
	@echo "make demo   replay a small recording through the real server and show what happens"
	@echo "make test   run the tests (PYTEST_ARGS='-k name' to choose)"
	@echo "make check  ruff and mypy"
	@echo "make clean  remove the environment and caches"

demo: $(READY)
	@$(VENV)/bin/acp-agent demo

test: $(READY)
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist

$(READY): pyproject.toml
	@python=; \
	for candidate in $(or $(PYTHON),$(CANDIDATES)); do \
		if "$$candidate" -c '$(ENOUGH)' >/dev/null 2>&1; then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "make: no Python 3.11 or newer among: $(or $(PYTHON),$(CANDIDATES)); try make PYTHON=/path/to/python3.11" >&2; \
		exit 1; \
	fi; \
	if ! $(VENV)/bin/python -c '$(ENOUGH)' >/dev/null 2>&1 || ! $(VENV)/bin/python -m pip --version >/dev/null 2>&1; then \
		echo "making $(VENV) with $$("$$python" --version)"; \
		"$$("$$python" -c 'import sys; print(sys._base_executable)')" -m venv --clear $(VENV) || exit 1; \
	fi
	@PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
		$(VENV)/bin/python -m pip install --quiet --quiet --editable '.[all,test]'
	@touch $@
