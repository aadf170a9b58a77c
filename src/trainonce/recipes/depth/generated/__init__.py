"""Generated rooms and streets with exact depth."""
