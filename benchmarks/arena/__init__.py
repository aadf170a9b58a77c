"""The arena: every rule on every task, so that the recommended setting is decided by measurement."""
