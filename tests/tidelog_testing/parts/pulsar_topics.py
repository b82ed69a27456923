"""Topics for tests on Pulsar."""

from collections.abc import Awaitable, Callable

NewTopics = Callable[[int], Awaitable[list[str]]]
"""Creates topics with unique names, and returns their full names."""
