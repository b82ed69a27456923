"""What tests share that have a short form in the core, and longer ones in the extended suite or as a soak."""

from collections.abc import Callable, Container, Iterable
from typing import Any

import pytest

Recorder = Callable[[str, object], None]
"""The fixture ``record_property``: notes what a test has measured."""


def soak(*values: object, timeout_s: float = 600) -> Any:
    """Return values of a parameter with which a test is a soak, and may run for ``timeout_s``."""
    return pytest.param(*values, marks=[pytest.mark.soak, pytest.mark.timeout(timeout_s)])


def extended(*values: object) -> Any:
    """Return values of a parameter with which a test is of the extended suite; the core has others."""
    return pytest.param(*values, marks=pytest.mark.extended)


def in_core(kept: Container[Any], values: Iterable[Any]) -> list[Any]:
    """Return all values of a parameter; with those that are not ``kept`` a test is of the extended suite."""
    return [value if value in kept else extended(value) for value in values]
