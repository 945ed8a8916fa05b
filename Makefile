# Every command of the project. It needs Python 3.11 or newer and make; pip installs the rest into .venv.

PYTHON ?= python3
SHELL := /bin/bash
bin := .venv/bin
pip := $(bin)/python -m pip install --no-compile --constraint constraints.txt
pytest := $(bin)/python -m pytest -n auto --maxprocesses=8 --dist worksteal
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Python compiles a module when it is first imported, instead of all modules at installation, and keeps the result.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all test-gpu fuzz clients machines matrix bench results defaults claims gallery docs dist check lint \
  demo-in-a-hurry clean

help:
	@echo "make demo      train two LSTMs to colour Python code, one bidirectional and one one-directional, and compare them"
	@echo "make test      the essential tests; at most 90 seconds. make test T=tasks/tagging runs tests/tasks/tagging"
	@echo "make test-all  the whole test suite"
	@echo "make test-gpu  the tests of the GPU engine: in Triton's interpreter, and compiled for GPUs that need not be present"
	@echo "make fuzz      the random tests with thousands of cases each, and every combination of cell and regulariser"
	@echo "make clients   programs of other projects on these layers: their results and times (docs/clients.md); half an hour"
	@echo "make machines  training on several processes: killed processes, torchrun, two hosts (needs root)"
	@echo "make matrix    the essential tests with other versions of Python and torch, and on ARM (docs/engines.md); hours"
	@echo "make browser   the report in a real browser, and its pictures for docs/; needs chromium and npm"
	@echo "make bench     speed and memory compared with torch.nn and others; over an hour, or 15 minutes with BENCH=--quick"
	@echo "make results   each task on real data compared with plain PyTorch (docs/results.md); hours; GLASSGATE_DATA=FOLDER"
	@echo "make defaults  each task on three data sets: the defaults compared with the best settings found; GLASSGATE_DATA=FOLDER"
	@echo "make claims    measurements of claims about LSTMs (docs/why-lstm.md); some minutes, or hours with CLAIMS=full"
	@echo "make gallery   measure every built-in cell and write build/gallery.html, a page with their equations and pictures"
	@echo "make docs      build the documentation site in build/site and check its links; any web server can show that folder"
	@echo "make dist      build the wheel and the source distribution in dist/, install each outside of this folder and use it"
	@echo "make check     everything that CI runs: lint, format, types, imports, the commands and code of the README, tests"
	@echo "make lint      lint, format, types and imports"
	@echo "make clean     remove .venv, runs and caches"

demo: .venv/installed
	@$(bin)/glassgate demo $(DEMO)

test: .venv/installed
	@$(pytest) $(if $(T),$(addprefix tests/,$(T)),-m essential tests)

test-all: .venv/installed
	@$(pytest)

test-gpu: .venv/installed .venv/triton-3.6.0
	@$(pytest) -m "gpu or not gpu" tests/engines/triton_gpu
	@$(pytest) -m gpu tests/test_benchmarks.py

.venv/triton-3.6.0:  # the version before that of PyTorch 2.13, which GPU machines with PyTorch 2.11 have
	@$(bin)/python -m pip install --quiet --no-deps --target $@ triton==3.6.0

fuzz: .venv/installed
	@echo "Random constructions against torch.nn, cells with regularisers, and 10,000 written cells; about an hour ..."
	@$(pytest) -m "hypothesis or matrix" --hypothesis-profile=fuzz

clients: .venv/clients/installed
	@.venv/clients/bin/python -m pytest -n 0 -rs -m clients tests
	@.venv/clients/bin/python -m tests.clients

machines: .venv/installed
	@$(bin)/python -m pytest -m machines tests/tasks/training/processes

matrix: .venv/installed
	@$(bin)/python -m tests.matrix $(MATRIX)

browser: .venv/installed
	@$(pip) playwright | $(progress)
	@npm install --silent --no-save --prefix build/browser axe-core
	@$(bin)/python -m pytest -m browser tests/browser
	@cp build/browser/pictures/report*.png build/browser/pictures/live.gif docs/
	@cp build/browser/pictures/recording.png docs/student/report.png

bench: .venv/installed-bench
	@$(bin)/python -m benchmarks $(BENCH)

results: .venv/installed
	@$(bin)/python -m experiments.quality $(RESULTS)

defaults: .venv/installed
	@$(bin)/python -m experiments.defaults $(DEFAULTS)

dist: .venv/installed
	@rm -rf build dist
	@$(bin)/python -m tests.distributions

gallery: .venv/installed
	@$(bin)/python docs/gallery.py

docs: .venv/installed-docs
	@NO_MKDOCS_2_WARNING=1 $(bin)/python -m mkdocs build --quiet
	@echo "build/site/index.html"

claims: .venv/installed
	@$(bin)/glassgate compare --quick --output runs/claims
	@$(if $(filter full,$(CLAIMS)),$(bin)/glassgate compare --output runs/claims/full)
	@$(bin)/glassgate compare directions --output runs/claims
	@$(bin)/glassgate compare products --output runs/claims
	@$(bin)/python -m experiments.claims runs/claims

check: .venv/installed
	@$(MAKE) --no-print-directory --jobs=2 lint types-win32 types-darwin demo-in-a-hurry
	@$(MAKE) --no-print-directory test-all

types-%: .venv/installed
	@$(bin)/mypy --platform $* --cache-dir .mypy_cache/$* -p glassgate

lint: .venv/installed
	@echo "Lint and format (ruff), types (mypy) and imports (import-linter) ..."
	@$(bin)/ruff check --quiet && $(bin)/ruff format --check --quiet
	@$(bin)/mypy
	@$(bin)/lint-imports --no-logo

demo-in-a-hurry: .venv/installed
	@echo "The README's demo, trained on every 400th file ..."
	@rm -rf runs/check && $(MAKE) --no-print-directory demo DEMO="--every 400 --run runs/check"

clean:
	rm -rf .venv runs build dist .hypothesis .*_cache

# An editable installation with all extras; repeated only when one of these files has changed.
# setuptools is installed first and builds without isolation, so that its version is pinned like that of other packages;
# setuptools-scm too, without which seqeval is built as version 0.0.0.
.venv/installed: pyproject.toml constraints.txt Makefile | .venv/bin/python
	@echo "Installing into .venv: PyTorch and some smaller packages, a few minutes the first time ..."
	@set -o pipefail; { $(pip) setuptools setuptools-scm && $(pip) --no-build-isolation --editable '.[tasks,pictures,excel,translation,export,test,check]'; } | $(progress)
	@touch $@

.venv/installed-bench: .venv/installed
	@echo "Installing the peers of the benchmarks into .venv ..."
	@set -o pipefail; $(pip) --no-build-isolation --editable '.[bench]' | $(progress)
	@touch $@

.venv/installed-docs: .venv/installed
	@echo "Installing MkDocs into .venv ..."
	@set -o pipefail; $(pip) --no-build-isolation --editable '.[docs]' | $(progress)
	@touch $@

# An environment on top of .venv: these programs need other versions of some packages.
.venv/clients/installed: .venv/installed tests/clients/constraints.txt
	@echo "Installing programs of other projects into .venv/clients ..."
	@$(bin)/python -m venv --without-pip --clear .venv/clients
	@echo "import site; site.addsitedir('$$($(bin)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')')" \
	  > $$(echo .venv/clients/lib/python*/site-packages)/below.pth
	@set -o pipefail; .venv/clients/bin/python -m pip install --constraint tests/clients/constraints.txt \
	  --no-build-isolation --editable '.[clients]' | $(progress)
	@.venv/clients/bin/python -m pip install --quiet --no-deps --constraint constraints.txt silero-vad
	@.venv/clients/bin/python -m pip install --quiet --no-deps --constraint tests/clients/constraints.txt \
	  fla-core mlstm-kernels tirex-ts xlstm
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "Glassgate needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12")'
	@echo "Creating .venv ..."
	@$(PYTHON) -m venv .venv

# Shows pip's output as one line that changes, on a terminal; errors are printed.
progress = while read -r what name _; do \
    if [ -t 1 ]; then case $$what in \
      Collecting|Downloading|Installing) printf '\r\033[K  %s %.60s' "$$what" "$$name";; \
    esac; fi; \
  done; if [ -t 1 ]; then printf '\r\033[K'; fi
