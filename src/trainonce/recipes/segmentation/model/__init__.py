"""DeepLab and its encoders."""
