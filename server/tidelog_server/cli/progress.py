"""Progress of a stream of messages, on stderr."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn


class Progress:
    """A line that counts messages and bytes while a block runs, and is gone afterwards."""

    def __init__(self, verb: str, *, is_shown: bool) -> None:
        self._bar = RichProgress(
            SpinnerColumn(),
            TextColumn(f"{verb} {{task.completed:,.0f}} messages, {{task.fields[megabytes]:,.1f}} MB"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not is_shown,
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
        """Count messages. Call it once a batch, not once a message."""
        self._size_bytes += size_bytes
        self._bar.update(self._task, advance=messages, megabytes=self._size_bytes / 1e6)
