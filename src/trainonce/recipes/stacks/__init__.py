"""How the trials of small recipes are stacked: a file for each, apart from the recipe, whose code names its results."""
