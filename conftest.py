"""Runs the Python blocks of README and docs as tests, each file in one namespace."""

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")  # before torch: see the Makefile

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

# The adapters need packages of their own, and have a target of their own: make adapters.
with_adapters = "TRAINONCE_ADAPTERS" in os.environ
ADAPTER_PAGES = ["docs/how-to/trainers/*.md", "docs/tutorials/lightning.md"]
collect_ignore = ["docs/conf.py", "docs/_ext", "docs/_build"]
if not with_adapters:
    collect_ignore += ["tests/integrations"]
    collect_ignore += [f"src/trainonce/integrations/{name}.py" for name in ("lightning", "transformers", "accelerate")]
if "TRAINONCE_CLUSTER" not in os.environ:  # so do clusters: make cluster
    collect_ignore += ["tests/cluster"]

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["*.md"],
    excludes=["docs/_build/**/*.md", *([] if with_adapters else ADAPTER_PAGES)],
).pytest()
