"""What the figures share: style, labels, axes, plans, curves over steps, the space of ratios."""
