# `make help` lists the targets.
#
# PYTHON=<interpreter> and Torch_DIR=<folder of TorchConfig.cmake> use a PyTorch that is installed already.
# JOBS=<n> compiles n files at once.

BUILD_DIR ?= build
# The interpreter that the user chose, if any, without the default below: setup makes .venv only if there is none.
USER_PYTHON := $(PYTHON)
PYTHON ?= $(if $(Torch_DIR),python3,$(CURDIR)/.venv/bin/python)
# A file that includes LibTorch takes up to 2 GB to compile.
JOBS ?= $(shell awk -v cores="$$(nproc)" '/^MemAvailable/ { fit = int($$2 / 2e6) } \
  END { n = fit < cores ? fit : cores; print (n > 1 ? n : 1) }' /proc/meminfo)

# Setup leaves it to Python to compile what it imports. Where Python may not keep that, each process that imports
# PyTorch takes six seconds longer.
unexport PYTHONDONTWRITEBYTECODE

# Most tests keep one core busy, so each core runs some of them. Threads that wait leave the core to the others. Folders
# whose tests take longest come first, so that no core waits for one of them at the end.
PYTEST = OMP_WAIT_POLICY=PASSIVE $(PYTHON) -m pytest -n $(JOBS) --dist worksteal

SETUP = PYTHON='$(USER_PYTHON)' Torch_DIR='$(Torch_DIR)' tools/setup.sh

CPP_FILES = $(wildcard $(shell git ls-files --cached --others --exclude-standard -- "*.h" "*.cpp"))
MD_FILES = $(wildcard $(shell git ls-files --cached --others --exclude-standard -- "*.md"))
# What `make tidy` reads: the sources of the library, and all lines or those of a filter (tools/changed_lines.py).
FILES ?= $(filter-out tests/% benchmarks/% examples/% cmake/pch.cpp,$(filter %.cpp,$(CPP_FILES)))
# The checkout comes before any installed version of the package.
export PYTHONPATH := $(CURDIR)/python$(if $(PYTHONPATH),:$(PYTHONPATH))

.PHONY: help setup configure build compile demo compile-demo test test-in-place wheel packaging matrix conformance \
  architectures fuzz failing-memory hostile asan tsan sanitized zoo-packages zoo potentials bench page-test docs format \
  lint tidy clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup:  ## install what is missing: Debian packages, .venv with PyTorch and what tests use
	@$(SETUP)

configure:
	@$(SETUP) torch
	@cmake -S . -B $(BUILD_DIR) -G Ninja -DPython_EXECUTABLE='$(PYTHON)' \
	  $(if $(Torch_DIR),-DTorch_DIR='$(Torch_DIR)') -DCMAKE_MESSAGE_LOG_LEVEL=NOTICE

# Python packages that compiling does not need are installed meanwhile.
build: configure  ## compile the library, tests, examples and benchmarks into build/
	@$(MAKE) --no-print-directory -j 2 setup compile

demo: configure  ## train a small GPT, eager and in half of its memory, side by side (DEMO="--budget 0.3")
	@$(MAKE) --no-print-directory -j 2 setup compile-demo
	@$(PYTHON) examples/demo.py $(DEMO)

compile:
	@cmake --build $(BUILD_DIR) -j $(JOBS)

compile-demo:
	@# Neither of the first two needs the other; at the end, the example would be compiled alone.
	@cmake --build $(BUILD_DIR) -j $(JOBS) --target aten_recompute_precompiled \
	  examples/cpp_train/CMakeFiles/cpp_train.dir/main.cpp.o
	@cmake --build $(BUILD_DIR) -j $(JOBS) --target aten_recompute aten_recompute_tracking_allocator cpp_train

test: build  ## run the C++ tests, the Python tests, and tests of behavior again with modules that are planned in place
	@status=0; \
	ctest --test-dir $(BUILD_DIR) -j $(JOBS) --output-on-failure || status=1; \
	$(PYTEST) tests/fuzz tests/failing_memory tests/hostile tests/python tests/conformance tests/zoo || status=1; \
	$(PYTEST) --in-place --few-strategies tests/python/behavior || status=1; \
	exit $$status

test-in-place: build  ## run all tests of behavior with modules that are planned in place, with each strategy
	@$(PYTEST) --in-place tests/python/behavior

page-test: build  ## install a browser, and try the page of a report in it
	@tools/setup.sh page
	@$(PYTHON) -m pip install --quiet --upgrade --target $(BUILD_DIR)/page-test -r requirements-page.txt
	@PYTHONPATH=$(PYTHONPATH):$(BUILD_DIR)/page-test $(PYTHON) -m pytest tests/python/instruments/test_page.py

docs: $(BUILD_DIR)/docs-tools/installed  ## build the site of documents into build/site (REPOSITORY_URL= makes links to sources lead there)
	@NO_MKDOCS_2_WARNING=1 PATH=$(CURDIR)/$(BUILD_DIR)/docs-tools/bin:$$PATH PYTHONPATH=$(CURDIR)/$(BUILD_DIR)/docs-tools \
	  $(PYTHON) -m mkdocs build --strict --site-dir $(BUILD_DIR)/site
	@echo "docs: open $(BUILD_DIR)/site/index.html"

# Warnings are counted only where they are shown, so the build of the site is not quiet.
$(BUILD_DIR)/docs-tools/installed: requirements-docs.txt
	@$(SETUP) docs
	@$(PYTHON) -m pip install --quiet --upgrade --target $(BUILD_DIR)/docs-tools -r requirements-docs.txt
	@touch $@

wheel: setup  ## make a wheel in dist/ with a library for each of several versions (TORCH="2.13.0 2.15.0")
	@JOBS=$(JOBS) $(PYTHON) tools/make_wheel.py $(TORCH)

packaging: setup  ## try the wheel of dist/ and the source as an outsider does, in empty environments
	@JOBS=$(JOBS) $(PYTHON) tests/packaging/run.py

matrix:  ## build and test against several versions of PyTorch (hours; VERSIONS="2.14 2.15", or --compile-only)
	@JOBS=$(JOBS) tools/matrix.sh $(VERSIONS)

conformance: build  ## lower every operator and module of PyTorch's own lists (an hour; CONFORMANCE="'fft.*'" does less)
	@PYTHONPATH=$(PYTHONPATH):tests $(PYTHON) -m conformance --output $(BUILD_DIR) $(CONFORMANCE)

architectures: build  ## count where the gradients of Hugging Face's architectures come from
	@PYTHONPATH=$(PYTHONPATH):tests/python $(PYTHON) -m support.architectures

fuzz: build  ## compare random programs with eager PyTorch (COUNT=2000; SEED= repeats a run; KIND=gradients, modules, norms, layouts, loops)
	@PYTHONPATH=$(PYTHONPATH):tests:tests/python $(PYTHON) -m fuzz --count $(or $(COUNT),2000) $(if $(SEED),--seed $(SEED)) $(if $(KIND),--kind $(KIND))

failing-memory: build  ## let every request for memory of some training steps fail (half an hour; FAILING="gpt --kind new" does less)
	@PYTHONPATH=$(PYTHONPATH):tests:tests/python:. $(PYTHON) -m failing_memory $(FAILING)

hostile: build  ## try hostile options, plans, files and command lines (HOSTILE="plan --seconds 60" does less than ten minutes each)
	@PYTHONPATH=$(PYTHONPATH):tests:tests/python:. $(PYTHON) -m hostile $(HOSTILE)

# What is interesting beside the C++ tests: memory of its own, threads, hooks, errors.
SANITIZED_TESTS ?= tests/python/behavior/test_hooks.py tests/python/behavior/test_errors.py \
  tests/python/behavior/test_interrupted_steps.py tests/python/planning/test_arena.py

asan: setup configure  ## build with AddressSanitizer and UndefinedBehaviorSanitizer, and run the C++ tests and some Python tests
	@$(MAKE) --no-print-directory sanitized SANITIZER=asan PRELOADED=libasan.so

tsan: setup configure  ## do the same with ThreadSanitizer
	@$(MAKE) --no-print-directory sanitized SANITIZER=tsan PRELOADED=libtsan.so

# Python is not compiled with a sanitizer, so that it is loaded first, with the library of C++ whose exceptions it
# watches, and looks for no leaks of Python's.
sanitized:
	@cmake --preset $(SANITIZER) -DPython_EXECUTABLE='$(PYTHON)' -DCMAKE_MESSAGE_LOG_LEVEL=NOTICE
	@cmake --build --preset $(SANITIZER) -j $(JOBS)
	@ctest --preset $(SANITIZER)
	@LD_PRELOAD="$$($(or $(CXX),c++) -print-file-name=$(PRELOADED)) $$($(or $(CXX),c++) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	  TSAN_OPTIONS=suppressions=$(CURDIR)/tests/sanitizers/thread.txt:ignore_noninstrumented_modules=1:allocator_may_return_null=1 \
	  RECOMPUTE_LIBRARY=$(CURDIR)/build/$(SANITIZER)/libaten_recompute.so $(PYTHON) -m pytest $(SANITIZED_TESTS)

# The packages of their authors.
zoo-packages: build
	@$(PYTHON) -m pip install --quiet --no-deps --upgrade --target $(BUILD_DIR)/zoo -r tests/zoo/requirements.txt

zoo: zoo-packages  ## train models as their authors scripted or traced them beside eager PyTorch (ZOO="schnet painn" does less)
	@PYTHONPATH=$(PYTHONPATH):tests:.:$(BUILD_DIR)/zoo $(PYTHON) -m zoo --output $(BUILD_DIR) $(ZOO)
	@PYTHONPATH=$(PYTHONPATH):tests:.:$(BUILD_DIR)/zoo $(PYTHON) -m zoo.sizes

potentials: zoo-packages  ## compare potentials of up to 2,000 atoms with eager, from C++, too (POTENTIALS="schnet_forces --atoms 20" does less)
	@cmake --build $(BUILD_DIR) -j $(JOBS) --target aten_recompute_zoo_step
	@PYTHONPATH=$(PYTHONPATH):tests:.:$(BUILD_DIR)/zoo $(PYTHON) -m zoo.potentials $(POTENTIALS)

bench: build  ## measure memory and time beside PyTorch's own methods (hours; BENCH="--models gpt" does less)
	@$(PYTHON) benchmarks/run.py $(BENCH)

format:  ## format the C++ and Python sources in place
	@$(SETUP) lint
	@clang-format -i $(CPP_FILES)
	@$(PYTHON) -m ruff check --quiet --select I --fix
	@$(PYTHON) -m ruff format --quiet

lint:  ## check formatting, which file includes which, the rules and types of Python, and Markdown with its links
	@$(SETUP) lint
	@tools/check_includes.py
	@tools/check_names.py
	@tools/check_links.py
	@clang-format --dry-run -Werror $(CPP_FILES)
	@$(PYTHON) -m ruff check --quiet
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m mypy
	@$(PYTHON) -m pymarkdown --strict-config scan $(MD_FILES)

tidy: setup  ## run clang-tidy over the library (slow; FILES="common/log.cpp" reads these sources only)
	@tools/setup.sh tidy
	@cmake -S . -B $(BUILD_DIR)/tidy -G Ninja -DPython_EXECUTABLE='$(PYTHON)' \
	  -DATEN_RECOMPUTE_PCH=OFF -DATEN_RECOMPUTE_UNITY=OFF -DATEN_RECOMPUTE_CCACHE=OFF -DCMAKE_MESSAGE_LOG_LEVEL=NOTICE
	@$(PYTHON) tools/tidy.py --jobs $(JOBS) --line-filter='$(TIDY_LINES)' $(BUILD_DIR)/tidy $(FILES)

clean:  ## remove build/ (.venv stays)
	@rm -rf $(BUILD_DIR)
