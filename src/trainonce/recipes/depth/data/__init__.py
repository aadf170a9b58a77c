"""The data sets of the depth recipe, and how frames become batches."""
