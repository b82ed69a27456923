"""Which vchannels each scan of a consumer has, and when scans are replaced. Pure: no I/O, no clock.

To open a scan costs the server and the client time for each of its vchannels, and a rebalance of a large group changes
a few vchannels of each member, many times in a row. So a change opens a scan of the new vchannels only, what is lost
stays in its scan and is ignored, and scans are replaced so seldom that a vchannel is opened a logarithmic number of
times.
"""

from collections.abc import Collection, Iterable
from typing import Final

MAX_SCAN_VCHANNELS: Final = 1_024
"""Maximum number of vchannels that the server accepts in a scan."""
MAX_SPARE_SCANS: Final = 4
"""Maximum number of scans more than necessary, apart from those of the last change."""
_MIN_MERGED: Final = 2


class ScanPart:
    """One scan.

    Attributes:
        names: The vchannels that it delivers.
        opened: Number of vchannels with which it was opened.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = set(names)
        self.opened = len(self.names)

    @property
    def is_worn(self) -> bool:
        """Whether it delivers fewer than half of the vchannels with which it was opened."""
        return 2 * len(self.names) < self.opened


class ScanLayout:
    """The scans of a consumer. Each vchannel is delivered by one of them.

    Attributes:
        parts: The scans.
        part_of: The scan of each vchannel.
    """

    def __init__(self) -> None:
        self.parts: list[ScanPart] = []
        self.part_of: dict[str, ScanPart] = {}

    @property
    def is_minimal(self) -> bool:
        """Whether there are only as many scans as necessary, and none has more vchannels than it delivers."""
        needed = _scans_of(len(self.part_of))
        return len(self.parts) == needed and all(len(part.names) == part.opened for part in self.parts)

    def drop(self, vchannels: Iterable[str]) -> dict[ScanPart, set[str]]:
        """Deliver nothing more of these vchannels; return those that were delivered, by scan."""
        dropped: dict[ScanPart, set[str]] = {}
        for name in vchannels:
            if (part := self.part_of.pop(name, None)) is not None:
                dropped.setdefault(part, set()).add(name)
        for part, names in dropped.items():
            part.names -= names
        return dropped

    def add(self, vchannels: Iterable[str]) -> list[ScanPart]:
        """Deliver these vchannels, of those that no scan has; return the scans to open."""
        names = [name for name in vchannels if name not in self.part_of]
        added = [
            ScanPart(names[begin : begin + MAX_SCAN_VCHANNELS]) for begin in range(0, len(names), MAX_SCAN_VCHANNELS)
        ]
        for part in added:
            self.parts.append(part)
            self.part_of.update(dict.fromkeys(part.names, part))
        return added

    def to_replace(self) -> list[ScanPart]:
        """Return the scans that are worn, and of too many the smallest, which one can replace.

        At least two of them, and a larger one only once those before it have as many vchannels: as in a log-structured
        merge, a vchannel moves to a scan of about twice the size.
        """
        replaced = [part for part in self.parts if part.is_worn]
        kept = sorted((part for part in self.parts if not part.is_worn), key=_size, reverse=True)
        needed, merged, count = _scans_of(len(self.part_of)), 0, 0
        if len(kept) > needed + MAX_SPARE_SCANS:
            while kept and (count < _MIN_MERGED or _size(kept[-1]) <= merged or _scans_of(merged) >= count):
                replaced.append(kept.pop())
                merged, count = merged + _size(replaced[-1]), count + 1
        return replaced

    def remove(self, part: ScanPart) -> None:
        """Remove a scan that is closed, with its vchannels."""
        self.parts.remove(part)
        for name in part.names:
            del self.part_of[name]


def _size(part: ScanPart) -> int:
    return len(part.names)


def _scans_of(vchannels: int) -> int:
    """Return the number of scans that these vchannels need."""
    return -(-vchannels // MAX_SCAN_VCHANNELS)
