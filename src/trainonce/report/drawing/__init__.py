"""What the figures share: colours, labels, axes, the space of weights."""
