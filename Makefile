# `make demo` and `make test` do all the set-up themselves; `make help` lists the rest.
# The second run of each costs seconds: the environment, the build tree and llama.cpp are kept.

#   PYTHON=python3.12   use this Python; it gets an environment of its own, .venv-3.12
#   VENV=DIR            put the environment there
#   CONFIG="..."        options of the build: CONFIG="-C cmake.define.GGML_CUDA=ON"; the build tree
#                       remembers them until `make clean`
#   ARGS="..."          options of the demo, of pytest, of the benchmarks, of the fuzzer, of the soak
#   SANITIZE=thread     sanitizer of `make cpp` and `make soak`; also SANITIZE=address,undefined
#   VENDOR="..."        options of tools/vendor.py: VENDOR="--archive FILE"

SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

ifeq ($(origin PYTHON),undefined)
  candidates := python3 python python3.14 python3.13 python3.12 python3.11 python3.10
  PYTHON := $(shell for p in $(candidates); do \
    "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
    && { echo "$$p"; break; }; done)
  VENV ?= .venv
endif
version := $(shell $(PYTHON) -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
VENV ?= .venv-$(basename $(version))
py := $(VENV)/bin/python
in_venv := PATH="$(abspath $(VENV))/bin:$$PATH"

# What has been done to the environment. A Python of another version makes it anew.
done := $(VENV)/.pronk
venv := $(done)/venv-$(version)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Directories too, so that a removed file counts as a change; cpp itself is the name of a target.
tidy := -name __pycache__ -prune -o -name '*.pyc' -o
sources := CMakeLists.txt pyproject.toml vendor/llama.cpp.pin \
  $(shell find cpp/* src $(tidy) -print 2>/dev/null)
comma := ,
core := build/core$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))
cpp_files = $(shell find cpp tests examples -name "*.h" -o -name "*.cpp")

.PHONY: help demo test test-packaging fuzz soak soak-here cpp lint style types format bench bench-peers install \
  vendor clean FORCE

help:
	@echo 'make demo      set up, build, fetch the model, run agents on it'
	@echo 'make test      set up, build, run the tests'
	@echo 'make test-packaging'
	@echo '               build and test the distributions, and projects that embed pronk'
	@echo 'make cpp       build and run the C++ tests of the core, see SANITIZE'
	@echo 'make fuzz      try odd model files, grammars, templates, calls, ...: ARGS="--help"'
	@echo 'make soak      work at random for a while, see SANITIZE: ARGS="--minutes 60"'
	@echo 'make lint      check style and types (make style: what needs no build)'
	@echo 'make format    put the style right'
	@echo 'make bench     run the benchmarks'
	@echo 'make bench-peers'
	@echo '               install the Python packages that they are measured against, which compiles'
	@echo 'make install   set up and build into $(VENV)'
	@echo 'make clean     remove the environments and the build trees'

demo: install
	$(py) -m pronk demo $(ARGS)

test: install $(done)/test $(done)/programs
	$(py) -m pytest $(ARGS)

test-packaging: install $(done)/packaging
	$(py) -m pytest -m packaging tests/packaging/built $(ARGS)

fuzz: install $(done)/test
	PYTHONPATH=tests $(py) -m fuzz $(ARGS)

# With a sanitizer, which has to see everything: in an environment and a build tree of its own, all of
# llama.cpp included; needs GCC on Linux. Its library comes first, before Python, which stays as it is.
sanitized := $(subst $(comma),-,$(SANITIZE))
soak:
	+$(MAKE) soak-here $(if $(SANITIZE),VENV=.venv-$(sanitized) \
	  CONFIG="-C build-dir=build/python-$(sanitized) -C install.strip=false \
	  -C cmake.define.PRONK_SANITIZE=$(SANITIZE)")

library = $$($(CXX) -print-file-name=lib$1.so)
# Blocks that were freed stay for a while; a short while, so that memory can be judged.
options_address := ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16:thread_local_quarantine_size_kb=64:malloc_context_size=6
options_thread := TSAN_OPTIONS="suppressions=$(CURDIR)/tests/sanitizers/thread.txt ignore_noninstrumented_modules=1 exitcode=66"
runtime_address := asan
runtime_thread := tsan
sanitizer_of := $(firstword $(subst $(comma), ,$(SANITIZE)))
under_sanitizer = PYTHONMALLOC=malloc $(options_$(sanitizer_of)) UBSAN_OPTIONS=print_stacktrace=1 \
  LD_PRELOAD="$(call library,$(runtime_$(sanitizer_of))) $(call library,stdc++)"
soak-here: install $(done)/test
	$(if $(SANITIZE),env $(under_sanitizer)) $(py) tests/soak.py $(ARGS)

# The core by itself, without llama.cpp, Python or a model: quick to build, also with a sanitizer.
cpp: $(done)/build
	$(VENV)/bin/cmake -S tests/cpp/standalone -B $(core) -G Ninja \
	  -DCMAKE_MAKE_PROGRAM="$(abspath $(VENV))/bin/ninja" -DPRONK_SANITIZE=$(SANITIZE)
	$(VENV)/bin/cmake --build $(core)
	$(VENV)/bin/ctest --test-dir $(core) --output-on-failure $(ARGS)

bench: install $(done)/bench
	$(py) -m benchmarks $(ARGS)

bench-peers: $(done)/peers

lint: style types

style: $(done)/lint
	$(py) -m ruff check .
	$(py) -m ruff format --check .
	$(VENV)/bin/clang-format --dry-run -Werror $(cpp_files)

# Checked in what was installed: only there the generated stubs lie beside the rest.
types: install $(done)/lint
	$(py) -m mypy -p pronk
	$(py) -m mypy tools/*.py
	$(py) -m mypy benchmarks
	$(py) -m mypy examples/*.py
	$(in_venv) pyright --warnings $(VENV)/lib/python*/site-packages/pronk/_core.pyi
	$(in_venv) pyright --verifytypes pronk --ignoreexternal

format: $(done)/lint
	$(py) -m ruff check --fix .
	$(py) -m ruff format .
	$(VENV)/bin/clang-format -i $(cpp_files)

install: $(done)/install

# ---- the steps ----

$(venv):
	@test -n "$(PYTHON)" || { echo 'make: Python: got none of $(candidates), expected CPython 3.10' \
	  'or newer, install it or set PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	  { echo "make: $(PYTHON): got $$($(PYTHON) -V 2>&1 | head -n 1), expected Python 3.10 or newer," \
	  'set PYTHON=...' >&2; exit 1; }
	@$(PYTHON) tools/preflight.py
	@test ! -e $(VENV) -o -d $(done) || { echo 'make: $(VENV): got an environment that make did not' \
	  'set up, expected none, move it away or set VENV=...' >&2; exit 1; }
	@rm -rf $(VENV) && mkdir -p $(done)
	$(PYTHON) -m venv $(VENV)
	$(py) -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(addprefix $(done)/,build test packaging bench lint): $(done)/%: pyproject.toml | $(venv)
	$(py) -m pip install --quiet --group $*
	@touch $@

# Compiled for this CPU, and with what AMX needs, as pronk is; without what reads images. Not from
# pip's cache, where a build for another machine may lie.
peer_flags := -march=native -include $(abspath cpp/cmake/amx_gcc.h)
$(done)/peers: pyproject.toml | $(venv)
	@export CMAKE_ARGS="$$CMAKE_ARGS -DLLAVA_BUILD=OFF"; \
	if $${CXX:-c++} $(peer_flags) -E -x c++ /dev/null >/dev/null 2>&1; then \
	  CMAKE_ARGS="$$CMAKE_ARGS -DGGML_NATIVE=OFF -DCMAKE_C_FLAGS='$(peer_flags)'"; \
	  CMAKE_ARGS="$$CMAKE_ARGS -DCMAKE_CXX_FLAGS='$(peer_flags)'"; \
	fi; set -x; $(py) -m pip install --no-cache-dir --group peers
	@touch $@

vendor: | $(done)/build
	@$(py) tools/vendor.py $(VENDOR)

# Changes only when an option of the build does.
options = $(CONFIG) CC=$(CC) CXX=$(CXX) CMAKE_ARGS=$(CMAKE_ARGS)
$(done)/options: FORCE | $(venv)
	@echo "$(options)" | cmp -s - $@ || echo "$(options)" > $@

# The first build takes minutes, so it shows its steps.
$(done)/install: $(sources) $(done)/options $(done)/build | vendor
	$(py) -m pip install --verbose --no-build-isolation $(CONFIG) .
	@touch $@

# The C++ programs that the tests run, from the build tree that the installed package came from.
tag_of_wheel := from importlib.metadata import distribution as d; \
  print(d("pronk").read_text("WHEEL").split("Tag: ")[1].split()[0])
$(done)/programs: $(done)/install $(wildcard tests/cpp/*)
	@tree="build/$$($(py) -c '$(tag_of_wheel)')" && set -x && \
	$(VENV)/bin/cmake -DPRONK_BUILD_TESTS=ON "$$tree" && \
	$(VENV)/bin/cmake --build "$$tree" --target pronk_tests \
	  pronk_simulation pronk_stress reference_greedy
	@touch $@

clean:
	rm -rf build dist .venv .venv-* vendor/.llama.cpp-* .mypy_cache .pytest_cache .ruff_cache
