"""Rules where people already train. Each module needs the package it is named after, and nothing else."""
