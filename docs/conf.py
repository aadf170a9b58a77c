"""The site: Markdown pages and the reference from docstrings, built offline and strictly by ``make docs``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import trainonce

project = "trainonce"
author = "The trainonce developers"
copyright = "The trainonce developers, MIT licence"  # noqa: A001 Sphinx's name
version = release = trainonce.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "mathml"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_ext", "results/data", "how-to/trainers/table.md"]

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["lightning", "pytorch_lightning", "transformers", "accelerate"]

html_theme = "furo"
html_title = "trainonce"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
