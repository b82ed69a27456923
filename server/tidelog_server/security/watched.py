"""Files that are reloaded when they change; if the new content is invalid, the previous content stays in force."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

_log = structlog.get_logger()
_Content = TypeVar("_Content")


class Watched(Generic[_Content]):
    """The content of watched files.

    Attributes:
        content: Last valid content.
        failures: Number of changes that were invalid.
    """

    def __init__(self, what: str, paths: Sequence[Path], read: Callable[[], _Content]) -> None:
        """Read the files. Raises what ``read`` raises.

        Args:
            what: Name for logs.
            paths: Files to watch.
            read: Returns their content; it may block, and raises ValueError if the content is invalid.
        """
        self._what = what
        self._paths = paths
        self._read = read
        # Ordering: before the read, so that a change in between causes another read.
        self._seen = self._look()
        self.content = read()
        self.failures = 0

    async def poll(self) -> bool:
        """Read the files if they changed, and return whether the content is new.

        Invalid content is logged once per change, and the previous content stays in force.
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
            _log.error("security_file_refused", what=self._what, cause=str(error), kept="the previous content")
            return False
        _log.info("security_file_reloaded", what=self._what)
        return True

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_state_of, self._paths))


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with the file or with the target of a link; None if the file cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
