"""Segmentation that must work in another domain: CISS-source, the paper's second experiment, at three sizes.

Own code throughout; what is known of the original is its published description.
"""
