"""Interactive versions of some figures, drawn by Plotly, which is imported only when one is drawn."""
