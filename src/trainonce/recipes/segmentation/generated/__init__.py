"""Generated street scenes."""
