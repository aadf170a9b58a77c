"""The picture of gradient balance, from columns that the test plants."""

import balance_figure
import torch


def test_every_term_has_a_line_in_every_panel():
    base, *others = balance_figure.TERMS
    columns = {"step": torch.arange(1, 4)}
    columns |= {f"{kind}/{term}": torch.full((3,), 0.5) for kind in ("loss", "coefficient") for term in (base, *others)}
    columns |= {f"alignment/{term}": torch.zeros(3) for term in others}
    panels = balance_figure.draw(balance_figure.with_ratios(columns)).axes
    assert [len(axes.lines) for axes in panels] == [3, 3, 3]
    assert panels[1].lines[0].get_ydata() == [1, 1]
    assert panels[1].lines[1].get_ydata().tolist() == [1, 1, 1]
    assert panels[2].lines[1].get_ydata().tolist() == [1, 1, 1]
