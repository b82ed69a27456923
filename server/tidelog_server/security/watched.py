"""Files that are read anew when they change, while what they had before stays in force until they are right again."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

_log = structlog.get_logger()
_Content = TypeVar("_Content")


class Watched(Generic[_Content]):
    """What some files have.

    Attributes:
        content: As last read well.
        failures: How often a change could not be used so far.
    """

    def __init__(self, what: str, paths: Sequence[Path], read: Callable[[], _Content]) -> None:
        """Read the files. Raises what ``read`` raises.

        Args:
            what: For logs.
            paths: Whose changes are noticed.
            read: Returns what they have; blocks, and raises ValueError if it cannot be used.
        """
        self._what = what
        self._paths = paths
        self._read = read
        # Before they are read: a change in between is read once more.
        self._seen = self._look()
        self.content = read()
        self.failures = 0

    async def poll(self) -> bool:
        """Read the files anew if they changed; return whether there is something new.

        What cannot be used is logged once for each change, and what was there before stays.
        """
        seen = await asyncio.to_thread(self._look)
        if seen == self._seen:
            return False
        self._seen = seen
        return await self._reread()

    async def _reread(self) -> bool:
        try:
            self.content = await asyncio.to_thread(self._read)
        except ValueError as error:
            self.failures += 1
            _log.error("security_file_refused", what=self._what, cause=str(error), kept="what was in force before")
            return False
        _log.info("security_file_reloaded", what=self._what)
        return True

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_state_of, self._paths))


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with a file, also where it is a link to another one; None if it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
