"""``with`` and ``async with``: objects that are closed at the end of the block."""

from abc import abstractmethod
from typing import Self


class Closing:
    """Closes the object at the end of a ``with`` block."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Close the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClosing:
    """Closes the object at the end of an ``async with`` block."""

    __slots__ = ()

    @abstractmethod
    async def aclose(self) -> None:
        """Close the object."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
