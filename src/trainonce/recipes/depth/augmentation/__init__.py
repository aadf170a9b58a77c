"""How frames become inputs: random views for training, letterboxed ones for evaluation."""
