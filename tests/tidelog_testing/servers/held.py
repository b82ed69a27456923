"""What a ``with`` block holds, and kills at its end."""

from abc import ABC, abstractmethod
from typing import Self


class Held(ABC):
    """``with`` kills it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @abstractmethod
    def kill(self) -> None:
        """End all of it."""
