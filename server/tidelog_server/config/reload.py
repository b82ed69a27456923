"""Changing the settings of a running server: all reloadable settings change together, or none does."""

from collections.abc import Callable
from dataclasses import dataclass

from tidelog_server.config.load import Config

Apply = Callable[[], None]


@dataclass(frozen=True, slots=True)
class ReloadablePart:
    """A part of the server that can apply new settings while it runs.

    Attributes:
        keys: Its settings, as ``section.name``.
        prepare: Checks a new configuration without changing anything, and returns the function that applies it, which
            must not fail. Raises ValueError, with a text for the operator, or OSError.
        is_always_due: True to call ``prepare`` even if no setting changed, because the settings name files whose
            content may have changed.
    """

    keys: frozenset[str]
    prepare: Callable[[Config], Apply]
    is_always_due: bool = False


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """The result of a reload.

    Attributes:
        changed: Settings that took effect.
        needs_restart: Settings that differ from those in effect, and take effect at the next start.
    """

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


class ReloadRefusedError(Exception):
    """The new settings were refused and none took effect. The text gives the reason."""


class Reloader:
    """Holds the reloadable parts and the settings in effect."""

    def __init__(self, config: Config) -> None:
        self._texts = dict(config.texts)
        self._parts: list[ReloadablePart] = []

    def register(self, part: ReloadablePart) -> None:
        """Add a part. Its settings must not belong to another part."""
        assert part.keys <= self._texts.keys()
        assert not part.keys & self.keys
        self._parts.append(part)

    @property
    def keys(self) -> frozenset[str]:
        """All settings that can change at runtime."""
        return frozenset(key for part in self._parts for key in part.keys)

    def reload(self, config: Config) -> ReloadOutcome:
        """Apply all reloadable settings of ``config``, or none.

        Raises:
            ReloadRefusedError: A part refused its settings. Nothing was changed.
        """
        differing = {key for key, text in config.texts.items() if self._texts[key] != text}
        due = [part for part in self._parts if part.is_always_due or part.keys & differing]
        try:
            prepared = [part.prepare(config) for part in due]
        except (ValueError, OSError) as error:
            raise ReloadRefusedError(str(error)) from error
        for apply in prepared:
            apply()
        changed = differing & self.keys
        self._texts.update({key: config.texts[key] for key in changed})
        return ReloadOutcome(tuple(sorted(changed)), tuple(sorted(differing - changed)))
