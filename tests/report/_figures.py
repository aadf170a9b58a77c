"""What tests read from a figure: marked lines, texts, the places of labels."""

from matplotlib.backends.backend_agg import FigureCanvasAgg

TERMS = {1: ("ce", "consistency"), 2: ("ce", "consistency", "rec"), 3: ("ce", "consistency", "rec", "smooth")}


def marked(figure, gid):
    """The lines of a figure with the given mark, or whose mark starts with it."""
    return [line for line in figure.axes[0].lines if str(line.get_gid() or "").startswith(gid)]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def boxes(figure, gid="label"):
    """The places of labels as they are drawn."""
    FigureCanvasAgg(figure).draw()
    found = [text for text in figure.axes[0].texts if text.get_gid() == gid]
    return [(text.get_text(), text.get_window_extent()) for text in found]
