"""The one error of configuration."""

from collections.abc import Sequence


class ConfigError(Exception):
    """The configuration cannot be used; nothing was started.

    Attributes:
        problems: One line each with key, value, where it came from, and what is allowed. Never empty.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        assert problems
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))
