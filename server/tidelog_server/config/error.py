"""The configuration error."""

from collections.abc import Sequence


class ConfigError(Exception):
    """The configuration is invalid; nothing was started.

    Attributes:
        problems: One line per problem: key, value, origin, and the values allowed. Never empty.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        assert problems
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))
