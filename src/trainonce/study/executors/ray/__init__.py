"""Trials as tasks of a Ray cluster."""
