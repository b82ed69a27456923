"""Progress on stderr; stdout is reserved for data."""

import os
import stat
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as RichProgress


def progress_line(*columns: ProgressColumn, is_shown: bool = True) -> RichProgress:
    """Return a progress line on stderr that disappears when it stops.

    By default Rich replaces ``sys.stdout`` while it draws and redirects printed text to stderr. That text would be the
    data of the command, whose stdout is a file or a pipe.
    """
    return RichProgress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=not is_shown,
        redirect_stdout=False,
    )


class Progress:
    """A context manager that shows the number of messages and bytes until it exits."""

    def __init__(self, verb: str, *, is_shown: bool) -> None:
        self._bar = progress_line(
            SpinnerColumn(),
            TextColumn(f"{verb} {{task.fields[messages]:,.0f}} messages, {{task.fields[megabytes]:,.1f}} MB"),
            TimeElapsedColumn(),
            is_shown=is_shown,
        )
        self._verb = verb
        self._task = self._bar.add_task(verb, total=None, messages=0, megabytes=0.0)
        self._messages = 0
        self._size_bytes = 0
        self._input: int | None = None
        self._begin = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def through(self, descriptor: int) -> Self:
        """Show the part of an input that was read, the rate and the time left, if its size is known: of a file.

        What was read is at most a few chunks ahead of what was counted.
        """
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            self._begin = os.lseek(descriptor, 0, os.SEEK_CUR)
            # The size of some files, such as those of /proc, is 0, whatever they contain.
            if found.st_size > self._begin:
                self._input = descriptor
                self._bar.columns = (
                    TextColumn(f"{self._verb} {{task.fields[messages]:,.0f}} messages"),
                    BarColumn(bar_width=16),
                    DownloadColumn(),
                    TransferSpeedColumn(),
                    TimeRemainingColumn(),
                )
                self._bar.update(self._task, total=found.st_size - self._begin)
        return self

    def advance(self, messages: int, size_bytes: int) -> None:
        """Count messages and bytes. Call it once per batch, not once per message."""
        self._messages += messages
        self._size_bytes += size_bytes
        self._bar.update(
            self._task,
            completed=None if self._input is None else os.lseek(self._input, 0, os.SEEK_CUR) - self._begin,
            messages=self._messages,
            megabytes=self._size_bytes / 1e6,
        )
