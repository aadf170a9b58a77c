"""The UniDepth network."""
