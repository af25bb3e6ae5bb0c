"""Assertions about refused calls."""

import re
from collections.abc import Callable

import pytest


def assert_refused(call: Callable[[], object], message: str) -> str:
    """Assert that a call raises a ValueError of one line that contains or matches `message`; return its text."""
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    text = str(caught.value)
    assert message in text or re.search(message, text), f"{text!r} has no match of {message!r}"
    assert "\n" not in text
    return text
