"""Changing settings of a running server: which may change, and all of them together or none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog_server.config.load import Config

Apply = Callable[[], None]


@dataclass(frozen=True, slots=True)
class ReloadablePart:
    """A part of the server that can take over settings while it runs.

    Attributes:
        keys: Its settings, ``section.name``.
        prepare: Checks a new configuration without changing anything, and returns what makes it effective, which must
            not fail. Raises ValueError, with a text for the operator, or OSError.
        is_always_due: Whether it is asked even if none of its settings has changed, because they name files that may
            have.
    """

    keys: frozenset[str]
    prepare: Callable[[Config], Apply]
    is_always_due: bool = False


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """What became of new settings.

    Attributes:
        changed: Settings that took effect.
        needs_restart: Settings that differ from those the server runs with, and take effect with its next start.
    """

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


class ReloadRefusedError(Exception):
    """New settings cannot take effect, and none has. Its text tells why."""


class Reloader:
    """Knows the parts, and the settings that are in effect."""

    def __init__(self, config: Config) -> None:
        self._texts = dict(config.texts)
        self._parts: list[ReloadablePart] = []

    def register(self, part: ReloadablePart) -> None:
        """Add a part; no other one has any of its settings."""
        assert part.keys <= self._texts.keys()
        assert not part.keys & self.keys
        self._parts.append(part)

    @property
    def keys(self) -> frozenset[str]:
        """All settings that may change."""
        return frozenset(key for part in self._parts for key in part.keys)

    def reload(self, config: Config) -> ReloadOutcome:
        """Make what may change of ``config`` effective, all of it or nothing.

        Raises:
            ReloadRefusedError: A part cannot take it over. Nothing was changed.
        """
        differing = {key for key, text in config.texts.items() if self._texts[key] != text}
        due = [part for part in self._parts if part.is_always_due or part.keys & differing]
        for apply in self._prepared(due, config):
            apply()
        changed = differing & self.keys
        self._texts.update({key: config.texts[key] for key in changed})
        return ReloadOutcome(tuple(sorted(changed)), tuple(sorted(differing - changed)))

    @staticmethod
    def _prepared(parts: Sequence[ReloadablePart], config: Config) -> list[Apply]:
        try:
            return [part.prepare(config) for part in parts]
        except (ValueError, OSError) as error:
            raise ReloadRefusedError(str(error)) from error
