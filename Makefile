# Everything runs in .venv, made on first use. Second calls are quick.
PYTHON ?= python3
BIN := .venv/bin
TORCH := $(shell grep '^torch==' constraints.txt)

# Without it bfloat16 matrix products crash on some CPUs; elsewhere it changes nothing below AVX-512.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE

.PHONY: help demo test lint types bench clean
help:
	@echo "make demo   compare learned weights with a grid on digits: a table and a page, in about a minute"
	@echo "make test   lint, types, tests, the code of README and docs"
	@echo "make bench  step time over a plain weighted sum (some minutes)"

.venv/ready: pyproject.toml constraints.txt
	@echo "Setting up .venv (some minutes the first time)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq $(TORCH)
	@$(BIN)/python -m pip install -qq -c constraints.txt -e ".[dev]"
	@touch $@

.venv/ready-bench: .venv/ready
	@$(BIN)/python -m pip install -qq -c constraints.txt -e ".[bench]"
	@touch $@

demo: .venv/ready
	@$(BIN)/trainonce compare digits --out out/demo

test: lint types
	$(BIN)/python -m pytest

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

bench: .venv/ready-bench
	$(BIN)/python benchmarks/overhead.py

clean:
	rm -rf .venv out .mypy_cache .ruff_cache .pytest_cache .hypothesis
