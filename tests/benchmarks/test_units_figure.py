"""The picture of gradient units, from columns that the test plants."""

import torch
import units_figure


def test_every_term_has_a_line_in_every_panel():
    columns = {"step": torch.arange(1, 4)}
    columns |= {f"{kind}/{term}": torch.ones(3) for kind in ("loss", "weight") for term in units_figure.TERMS}
    columns |= {f"unit/{term}": torch.full((3,), 0.1) for term in units_figure.TERMS[1:]}
    panels = units_figure.draw(columns).axes
    assert [len(axes.lines) for axes in panels] == [3, 3, 3]
    assert panels[1].lines[0].get_ydata() == [1, 1]  # the base is the unit
    assert panels[1].lines[1].get_ydata().tolist() == columns["unit/consistency"].tolist()
