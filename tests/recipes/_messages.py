"""What errors say."""

import pytest


def message(call, *args, **kwargs):
    """The text of the ValueError that a call raises."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 the tests check the text
        call(*args, **kwargs)
    return str(caught.value)
