"""Formulas as MathML, which browsers draw themselves: no script, no network, no LaTeX."""

from latex2mathml.converter import convert


def inline(translator, node):
    translator.body.append(convert(node.astext()))
    raise _skip()


def block(translator, node):
    for lines in filter(None, (part.strip() for part in node.astext().split("\n\n"))):
        formula = r"\begin{aligned}" + lines + r"\end{aligned}" if "&" in lines or r"\\" in lines else lines
        drawn = convert(formula, display="block")
        translator.body.append(f'<div class="math">{drawn}</div>')
    raise _skip()


def _skip():
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app):
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
