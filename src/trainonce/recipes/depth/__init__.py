"""Metric depth and camera from one image: UniDepth, the paper's first experiment, at three sizes.

Own code throughout; what is known of the original is its published description.
"""
