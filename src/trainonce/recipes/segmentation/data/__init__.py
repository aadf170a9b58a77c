"""The data sets of the segmentation recipe, and how scenes become batches."""
