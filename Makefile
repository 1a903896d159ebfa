# Every target is one or two scripts in tools/; each does its own set-up, so any of them works on a bare machine.
#
#   VENV=.venv          where the private Python environment lives
#   TORCH_INDEX=        package index to take PyTorch from; empty: the one pip is set up with. On an ordinary index for
#                       Linux `torch` is the CUDA build: give the index of the CPU builds here to save two gigabytes
#   JOBS=               parallel compiler runs; empty: one per core
#   WERROR=OFF          ON: compiler warnings are errors (as in CI)
#   T=60  TARGETS=      of `make fuzz`
#   TESTS=              of `make test-asan-python`
#   SPLIT=tuned UPSTREAM=  of `make faults`: tuned, more, blind, fresh, outside, second or all; the original's command, to compare with

VENV ?= .venv
T ?= 60
TARGETS ?=
TESTS ?=
SPLIT ?= tuned
UPSTREAM ?=
TORCH_INDEX ?=
JOBS ?=
WERROR ?= OFF
export VENV TORCH_INDEX JOBS WERROR

.DEFAULT_GOAL := help
.PHONY: controls faults help setup demo test test-slow test-arm64 neutrality fuzz asan test-asan-python tsan lint format tidy bench bench-quick clean wheel docs

help:     ## this list
	@sed -n 's/^\([a-z0-9-]*\): *## /  make \1\t/p' Makefile | expand -t 16

setup:    ## install what is missing, build, and install msprobe into .venv
	@tools/setup.sh build

demo:     ## two models with one wrong layer each: collect, compare, and name the place where the runs part
	@tools/setup.sh build demo
	@$(VENV)/bin/python examples/demo/run_demo.py

test:     ## every C++ and Python test
	@tools/setup.sh build test demo
	@tools/run_tests.sh

neutrality: ## trainings x levels x tasks, with collection and without: the matrix of what is bit-identical
	@tools/setup.sh build test
	@$(VENV)/bin/python tools/neutrality_matrix.py

test-slow: ## the tests that take minutes: hundreds of kills, long runs, whole matrices
	@tools/setup.sh build test demo
	@tools/run_tests.sh -m slow

controls: ## harmless differences and seeded faults: what compare says of each, as a table
	@tools/setup.sh build test
	@$(VENV)/bin/python tests/controls/print_table.py

faults:   ## faults and harmless runs in real architectures: who is named, in every mode (SPLIT=all UPSTREAM=path)
	@tools/setup.sh build test demo
	@$(VENV)/bin/python tests/faults/run_faults.py --split $(SPLIT) $(if $(UPSTREAM),--upstream $(UPSTREAM))

fuzz:     ## T seconds of fuzzing per target (T=60), or of the targets named in TARGETS=
	@tools/setup.sh build fuzz
	@tools/run_fuzz.sh $(T) $(TARGETS)

asan:     ## the C++ tests and the tests of the Python extension under the address and undefined sanitizers
	@tools/setup.sh build test demo
	@tools/run_asan.sh

test-asan-python: ## the Python part of asan alone, or the files named in TESTS=; counts add up over runs
	@tools/setup.sh build test demo
	@ASAN_CPP=OFF tools/run_asan.sh $(TESTS)

tsan:     ## the C++ tests that use several threads under the thread sanitizer
	@tools/setup.sh build test
	@tools/run_tsan.sh

test-arm64: ## cross-build for aarch64 and run the C++ tests under qemu, vector code for NEON included
	@tools/setup.sh build test arm64
	@tools/run_arm64.sh

lint:     ## format, clang-tidy, ruff, mypy, layers, promises, stub
	@tools/setup.sh build test lint
	@tools/run_lint.sh

format:   ## bring the sources into the project's format
	@tools/setup.sh lint
	@git ls-files '*.h' '*.cc' | xargs $(VENV)/bin/clang-format -i
	@$(VENV)/bin/ruff format -q . && $(VENV)/bin/ruff check -q --fix .

tidy:     ## clang-tidy over everything, without the time limit of `make lint`
	@tools/setup.sh build test lint
	@$(VENV)/bin/python tools/run_tidy.py --seconds 0

bench:    ## measure beside the original package; writes bench/RESULTS.md
	@tools/setup.sh build bench
	@$(VENV)/bin/python bench/run_bench.py

bench-quick: ## ours alone, once, in three minutes; build/bench/RESULTS.md
	@tools/setup.sh build bench
	@$(VENV)/bin/python bench/run_bench.py --quick

wheel:    ## a wheel in dist/ that installs with pip alone; tested in an empty environment
	@tools/setup.sh build wheel
	@tools/build_wheel.sh

docs:     ## the site of the documents, in build/site
	@tools/setup.sh docs
	@python3 tools/check_docs.py
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build -q

clean:    ## remove everything that was built or installed here
	rm -rf build dist output $(VENV) .venv-upstream .mypy_cache .ruff_cache .pytest_cache .hypothesis
