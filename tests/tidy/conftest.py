"""Syntax trees of the whole repository, held while the tests of this folder run."""

import gc
from collections.abc import Iterator

import pytest

from tidy.tree import parsed


@pytest.fixture(scope="package", autouse=True)
def _syntax_trees() -> Iterator[None]:
    """Collect no garbage beside millions of nodes, which have no cycles, and drop them in the end."""
    gc.disable()
    yield
    parsed.cache_clear()
    gc.enable()
