"""The error for what the user can mend in a command line."""


class Problem(Exception):  # noqa: N818 the user's, not the program's
    """A mistake in the command line or the task, in one sentence."""
