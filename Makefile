# Everything runs in .venv, made on first use. Second calls are quick.
PYTHON ?= python3
BIN := .venv/bin
TORCH := $(shell grep '^torch==' constraints.txt)

# Without it bfloat16 matrix products crash on some CPUs; elsewhere it changes nothing below AVX-512.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE

.PHONY: help demo check test adapters cluster docs lint types bench clean
help:
	@echo "make demo       compare learned weights with a grid on digits: a table and a page, in about a minute"
	@echo "make check      lint, types, the quick tests of the core: the inner loop, about a minute"
	@echo "make test       lint, types, all tests, the code of README and docs"
	@echo "make adapters   Lightning, Hugging Face, Accelerate, loggers: the same checks for each, and their pages"
	@echo "make cluster    studies on a Ray cluster, on this machine, and what goes wrong there"
	@echo "make docs       the site, in docs/_build/index.html"
	@echo "make bench      step time over a plain weighted sum (some minutes)"

.venv/ready: pyproject.toml constraints.txt
	@echo "Setting up .venv (some minutes the first time)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq $(TORCH)
	@$(BIN)/python -m pip install -qq -c constraints.txt -e ".[dev]"
	@touch $@

.venv/ready-bench: .venv/ready
	@$(BIN)/python -m pip install -qq -c constraints.txt -e ".[bench]"
	@touch $@

.venv/ready-adapters: .venv/ready
	@$(BIN)/python -m pip install -qq -c constraints.txt -e ".[adapters]"
	@touch $@

.venv/ready-cluster: .venv/ready
	@$(BIN)/python -m pip install -qq -c constraints.txt -e ".[cluster]"
	@touch $@

.venv/ready-docs: .venv/ready
	@$(BIN)/python -m pip install -qq -c constraints.txt -e ".[docs]"
	@touch $@

demo: .venv/ready
	@$(BIN)/trainonce compare digits --out out/demo

CORE := $(filter-out tests/test_examples.py,$(wildcard tests/test_*.py)) tests/health tests/balance $(wildcard src/trainonce/*.py) src/trainonce/health src/trainonce/balance

check: lint types
	$(BIN)/python -m pytest -q -m "not slow and not dist and not gpu" $(CORE)

# One test process per core, each with one thread: small networks gain nothing from more.
test: export OMP_NUM_THREADS ?= 1
test: lint types
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

adapters: export OMP_NUM_THREADS ?= 1
adapters: .venv/ready-adapters
	TRAINONCE_ADAPTERS=1 $(BIN)/python -m pytest tests/integrations docs/how-to/trainers docs/tutorials/lightning.md src/trainonce/integrations --table docs/how-to/trainers/table.md

cluster: export OMP_NUM_THREADS ?= 1
cluster: .venv/ready-cluster
	TRAINONCE_CLUSTER=1 $(BIN)/python -m pytest tests/cluster -m "not slow"

docs: .venv/ready-docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

bench: .venv/ready-bench
	$(BIN)/python benchmarks/overhead.py

clean:
	rm -rf .venv out docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
