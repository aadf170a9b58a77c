"""A little made-up data in every layout of the depth data sets, to try a command or a test with."""
