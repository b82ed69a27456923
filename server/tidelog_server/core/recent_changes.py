"""The names that changed lately, so that what follows a table need not look at all of it. Pure."""

from collections import OrderedDict
from typing import Final

# Names that a table remembers as changed, for those that watch it. A watch that is further behind looks at all names.
MAX_RECENT_CHANGES: Final = 10_000


class RecentChanges:
    """The last MAX_RECENT_CHANGES names that changed, each with the version of its last change.

    Attributes:
        version: Incremented with each change.
    """

    __slots__ = ("_forgotten", "_versions", "version")

    def __init__(self) -> None:
        self.version = 0
        self._versions: OrderedDict[str, int] = OrderedDict()
        # Greatest version of a change that is not remembered.
        self._forgotten = 0

    def note(self, name: str) -> None:
        """Note a change."""
        self.version += 1
        self._versions[name] = self.version
        self._versions.move_to_end(name)
        if len(self._versions) > MAX_RECENT_CHANGES:
            _, self._forgotten = self._versions.popitem(last=False)

    def since(self, version: int) -> list[str] | None:
        """Return the names that changed after ``version``, the last change first; None if they are not all known.

        The time is proportional to the number of names returned.
        """
        if version < self._forgotten:
            return None
        names: list[str] = []
        for name, changed in reversed(self._versions.items()):
            if changed <= version:
                break
            names.append(name)
        return names
