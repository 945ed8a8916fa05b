# Every command of the project. A machine needs Python 3.11 or newer and make; pip brings the rest into .venv.

PYTHON ?= python3
SHELL := /bin/bash
bin := .venv/bin
pip := $(bin)/python -m pip install --constraint constraints.txt
pytest := $(bin)/python -m pytest -n auto --maxprocesses=8
# The tests that show that the project works: layers and functions against torch.nn, gradients of the reference engine,
# every command, and the code and commands of the pages.
essential := tests/layers/test_against_torch.py tests/layers/test_errors.py tests/test_functional.py \
  tests/test_conversion.py tests/engines/test_reference.py tests/cli/test_commands.py tests/test_house.py
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test test-all test-gpu fuzz clients machines bench results defaults claims docs dist check clean

help:
	@echo "make demo    train a bidirectional LSTM to colour Python code, beside a one-directional one"
	@echo "make test    the tests that show that the project works, some minutes"
	@echo "make test-all the whole test suite"
	@echo "make fuzz    the random tests alone, thousands of cases each, and every combination of cell and regulariser"
	@echo "make test-gpu every test of the GPU engine: in Triton's interpreter, and its kernels compiled for GPUs that need not be present"
	@echo "make clients other people's programs on these layers, the same numbers and the times: docs/clients.md, half an hour"
	@echo "make machines training on several processes: killed, under torchrun, on two hosts (root), under SLURM where it runs"
	@echo "make browser the report in a real browser, and the pictures of it in docs/; it needs chromium and npm"
	@echo "make bench   every claim about speed and memory beside torch.nn and others, over an hour; BENCH=--quick: 15 minutes"
	@echo "make results each task on real data beside plain PyTorch, hours; GLASSGATE_DATA=FOLDER; docs/results.md says more"
	@echo "make defaults each task on three data sets: the defaults against a search around them; GLASSGATE_DATA=FOLDER"
	@echo "make docs    the documentation site in build/site, its links checked; any web server can show that folder"
	@echo "make dist    wheel and source distribution in dist/, each installed and used outside of this folder"
	@echo "make claims  what tutorials say of LSTMs, measured: docs/why-lstm.md, some minutes; CLAIMS=full: hours, resumable"
	@echo "make check   all that CI runs: lint, format, types, imports, the commands and code of the README, tests"
	@echo "make clean   remove .venv, runs and caches"

demo: .venv/installed
	@$(bin)/glassgate demo $(DEMO)

test: .venv/installed
	@$(pytest) $(essential)

test-all: .venv/installed
	@$(pytest)

test-gpu: .venv/installed
	@$(pytest) -m "gpu or not gpu" tests/engines/triton_gpu

fuzz: .venv/installed
	@echo "Random constructions against torch.nn, cells with regularisers, and 10,000 written cells; about an hour ..."
	@$(pytest) -m "hypothesis or matrix" --hypothesis-profile=fuzz

clients: .venv/clients/installed
	@.venv/clients/bin/python -m pytest -n 0 -m clients tests/clients
	@.venv/clients/bin/python -m tests.clients

machines: .venv/installed
	@$(bin)/python -m pytest -m machines tests/tasks/training/processes

browser: .venv/installed
	@$(pip) playwright | $(progress)
	@npm install --silent --no-save --prefix build/browser axe-core
	@$(bin)/python -m pytest -m browser tests/browser
	@cp build/browser/pictures/report*.png build/browser/pictures/live.gif docs/

bench: .venv/installed-bench
	@$(bin)/python -m benchmarks $(BENCH)

results: .venv/installed
	@$(bin)/python -m results $(RESULTS)

defaults: .venv/installed
	@$(bin)/python -m defaults $(DEFAULTS)

dist: .venv/installed
	@rm -rf build dist
	@$(bin)/python -m tests.distributions

docs: .venv/installed-docs
	@NO_MKDOCS_2_WARNING=1 $(bin)/python -m mkdocs build --quiet
	@echo "build/site/index.html"

claims: .venv/installed
	@$(bin)/glassgate compare --quick --output runs/claims
	@$(if $(filter full,$(CLAIMS)),$(bin)/glassgate compare --output runs/claims/full)
	@$(bin)/glassgate compare directions --output runs/claims
	@$(bin)/glassgate compare products --output runs/claims
	@$(bin)/python docs/claims.py runs/claims

check: .venv/installed
	@echo "Lint and format (ruff) ..."
	@$(bin)/ruff check --quiet && $(bin)/ruff format --check --quiet
	@echo "Types (mypy) ..."
	@$(bin)/mypy
	@echo "Rooms (import-linter) ..."
	@$(bin)/lint-imports --no-logo
	@echo "The README's commands (make demo in a hurry, make test-all) ..."
	@rm -rf runs/check && $(MAKE) --no-print-directory demo DEMO="--every 40 --run runs/check"
	@$(MAKE) --no-print-directory test-all

clean:
	rm -rf .venv runs build dist .hypothesis .*_cache

# The package in place with all extras; again only when one of these files has changed.
# setuptools comes first and builds without isolation, so that its version is pinned like any other.
.venv/installed: pyproject.toml constraints.txt Makefile | .venv/bin/python
	@echo "Installing into .venv: PyTorch and some smaller packages, a few minutes the first time ..."
	@set -o pipefail; { $(pip) setuptools && $(pip) --no-build-isolation --editable '.[tasks,pictures,matlab,excel,translation,export,test,check]'; } | $(progress)
	@touch $@

.venv/installed-bench: .venv/installed
	@echo "Installing the peers of the benchmarks into .venv ..."
	@set -o pipefail; $(pip) --no-build-isolation --editable '.[bench]' | $(progress)
	@touch $@

.venv/installed-docs: .venv/installed
	@echo "Installing MkDocs into .venv ..."
	@set -o pipefail; $(pip) --no-build-isolation --editable '.[docs]' | $(progress)
	@touch $@

# An environment on top of .venv, as these programs ask for other versions of what we have ourselves.
.venv/clients/installed: .venv/installed tests/clients/constraints.txt
	@echo "Installing other people's programs into .venv/clients ..."
	@$(bin)/python -m venv --without-pip --clear .venv/clients
	@echo "import site; site.addsitedir('$$($(bin)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')')" \
	  > $$(echo .venv/clients/lib/python*/site-packages)/below.pth
	@set -o pipefail; .venv/clients/bin/python -m pip install --constraint tests/clients/constraints.txt \
	  --no-build-isolation --editable '.[clients]' | $(progress)
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "Glassgate needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12")'
	@echo "Creating .venv ..."
	@$(PYTHON) -m venv .venv

# pip's hundreds of lines as one that moves, on a terminal; its errors come through.
progress = while read -r what name _; do \
    if [ -t 1 ]; then case $$what in \
      Collecting|Downloading|Installing) printf '\r\033[K  %s %.60s' "$$what" "$$name";; \
    esac; fi; \
  done; if [ -t 1 ]; then printf '\r\033[K'; fi
