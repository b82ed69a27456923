"""Configuration errors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog_server.config.layers import Assignment


class ConfigError(Exception):
    """The configuration is invalid; nothing was started.

    Attributes:
        problems: One line per problem: key, value, origin, and the values allowed. Never empty.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        assert problems
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class UnknownSettingsError(ConfigError):
    """A layer assigns settings that do not exist.

    Attributes:
        known: The layer's assignments of settings that exist, so that their values are checked for the same report.
    """

    def __init__(self, problems: Sequence[str], known: "Sequence[Assignment]") -> None:
        super().__init__(problems)
        self.known = tuple(known)
