"""The scans of a consumer whose vchannels come and go: each is in one scan, there are few, and few are opened again."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.groups.scan_layout import MAX_SCAN_VCHANNELS, MAX_SPARE_SCANS, ScanLayout, ScanPart

SIZES = st.sampled_from([0, 1, 2, 7, 40, MAX_SCAN_VCHANNELS, 3 * MAX_SCAN_VCHANNELS])


class Consumer:
    """A consumer that follows its vchannels, and what it opened for that."""

    def __init__(self) -> None:
        self.layout = ScanLayout()
        self.wanted: dict[str, None] = {}
        self.opened = 0
        self.scans = 0

    def change(self, lost: int, gained: int) -> None:
        """Lose some vchannels, gain others, and do what is due."""
        names = list(self.wanted)[:lost]
        before = {name: self.layout.part_of[name] for name in names}
        dropped = self.layout.drop(names)
        assert {name: part for part, each in dropped.items() for name in each} == before
        for name in names:
            del self.wanted[name]
        first = self.opened
        self.wanted |= dict.fromkeys(f"v{first}-{number}" for number in range(gained))
        self.replace(self.layout.to_replace())

    def replace(self, parts: list[ScanPart]) -> None:
        for part in parts:
            self.layout.remove(part)
        for part in self.layout.add(self.wanted):
            self.opened += part.opened
            self.scans += 1

    def check(self) -> None:
        layout = self.layout
        assert layout.part_of.keys() == self.wanted.keys()
        assert {name: part for part in layout.parts for name in part.names} == layout.part_of
        assert sum(len(part.names) for part in layout.parts) == len(layout.part_of)
        assert all(0 < part.opened <= MAX_SCAN_VCHANNELS and not part.is_worn for part in layout.parts)


@given(st.lists(st.tuples(SIZES, SIZES), max_size=30))
def test_each_vchannel_is_in_one_scan_and_there_are_few_scans(changes: list[tuple[int, int]]) -> None:
    consumer = Consumer()
    for lost, gained in changes:
        consumer.change(lost, gained)
        consumer.check()
        needed = -(-len(consumer.wanted) // MAX_SCAN_VCHANNELS)
        last = -(-gained // MAX_SCAN_VCHANNELS)
        assert len(consumer.layout.parts) <= needed + MAX_SPARE_SCANS + last + 1
        # Nothing is replaced again before something changes, once the last change is merged.
        consumer.replace(consumer.layout.to_replace())
        assert consumer.layout.to_replace() == []
    consumer.replace(list(consumer.layout.parts))
    consumer.check()
    assert consumer.layout.is_minimal


def test_the_first_of_256_members_opens_its_vchannels_twice_at_most() -> None:
    consumer, vchannels = Consumer(), 9_216
    consumer.change(0, vchannels)
    for members in range(2, 257):
        consumer.change(len(consumer.wanted) - vchannels // members, 0)
        consumer.check()
    assert len(consumer.wanted) == 36
    # 9,216 vchannels for the first time, then less than half of them after each halving. With one scan for all it was
    # 56,000 vchannels in 255 scans.
    assert consumer.opened <= 2 * vchannels
    assert consumer.scans <= 9 + 9 * 9


def test_who_gains_one_vchannel_after_the_other_opens_each_a_few_times() -> None:
    consumer = Consumer()
    for _ in range(1_000):
        consumer.change(0, 1)
        consumer.check()
    # With one scan for all it was 500,500 vchannels.
    assert consumer.opened <= 10 * 1_000
