"""Progress on stderr; stdout is reserved for data."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn


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
            TextColumn(f"{verb} {{task.completed:,.0f}} messages, {{task.fields[megabytes]:,.1f}} MB"),
            TimeElapsedColumn(),
            is_shown=is_shown,
        )
        self._task = self._bar.add_task(verb, total=None, megabytes=0.0)
        self._size_bytes = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, messages: int, size_bytes: int) -> None:
        """Count messages and bytes. Call it once per batch, not once per message."""
        self._size_bytes += size_bytes
        self._bar.update(self._task, advance=messages, megabytes=self._size_bytes / 1e6)
