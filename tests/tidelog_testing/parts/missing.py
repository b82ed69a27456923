"""A program that a test needs and that is not installed."""

import os
from typing import NoReturn

import pytest


def missing(why: str) -> NoReturn:
    """Skip the test with the reason ``why``; with ``CI=true`` it fails: there, what a test needs is installed."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)
