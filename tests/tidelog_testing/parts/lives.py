"""Steps of a model test, some of which are restarts."""

from collections.abc import Sequence
from typing import TypeVar

Step = TypeVar("Step")


def lives(steps: Sequence[Step], restart: type) -> list[list[Step]]:
    """Return the steps of each server: those before the first restart, those before the next one, and so on."""
    found: list[list[Step]] = [[]]
    for step in steps:
        if isinstance(step, restart):
            found.append([])
        else:
            found[-1].append(step)
    return found
