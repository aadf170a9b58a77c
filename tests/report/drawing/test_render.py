"""Figures as SVG."""

import re

from trainonce import report
from trainonce.report.drawing import render, style


def test_svg_follows_the_theme_and_has_ids_of_its_own(studies):
    figure = report.cost_quality(studies[1])
    one, other = render.svg(figure, "one"), render.svg(figure, "other")
    assert "currentColor" in one
    assert style.INK not in one
    assert "<metadata>" not in one
    ids = [set(re.findall(r'id="([^"]+)"', text)) for text in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
