"""Interactive versions of the figures, drawn by Plotly."""
