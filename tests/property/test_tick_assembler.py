"""Packs between ticks of producers, against a model that sees the whole log at once.

Method: random logs of several channels, with ticks, late messages and DropCollections, read in any order.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tidelog.msgstream import MsgType
from tidelog.msgstream._pulsar.assembler import TickAssembler, TickedPack

TICK, DROP, OTHER = int(MsgType.TIME_TICK), int(MsgType.DROP_COLLECTION), int(MsgType.INSERT)


class Entry(NamedTuple):
    channel: str
    message_id: bytes
    type: int
    time: int


Log = Mapping[str, Sequence[Entry]]
# A pack in the model: its end, the ids of its messages by channel, and the number of late ones.
Expected = tuple[int, Mapping[str, list[bytes]], int]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    names = "abc"[: draw(st.integers(1, 3))]
    entry = st.tuples(st.sampled_from((TICK, OTHER, OTHER, DROP)), st.integers(1, 12))
    return {
        name: [
            Entry(name, b"%s%d" % (name.encode(), number), kind, time)
            for number, (kind, time) in enumerate(draw(st.lists(entry, max_size=14)))
        ]
        for name in names
    }


def expected_packs(log: Log) -> list[Expected]:
    """Return all packs of a log."""
    ends: set[int] = set()
    timed: dict[str, list[tuple[int, bool, Entry]]] = {}
    last: dict[str, int] = {}
    for name, entries in log.items():
        tick, timed[name] = -1, []
        for entry in entries:
            if entry.type == TICK:
                tick = max(tick, entry.time)
                ends.add(tick)
                continue
            is_late = entry.time <= tick
            time = tick + 1 if is_late else entry.time
            timed[name].append((time, is_late, entry))
            if entry.type == DROP:
                ends.add(time)
        last[name] = tick
    packs: list[Expected] = []
    begin = -1
    for end in sorted(end for end in ends if end <= min(last.values())):
        inside = {name: [each for each in several if begin < each[0] <= end] for name, several in timed.items()}
        ids = {name: [each[2].message_id for each in several] for name, several in inside.items()}
        packs.append((end, ids, sum(each[1] for several in inside.values() for each in several)))
        begin = end
    return packs


def as_expected(pack: TickedPack[Entry, Entry], names: Sequence[str]) -> Expected:
    ids = {name: [each.message_id for each in pack.messages[name]] for name in names}
    return pack.end_tick, ids, pack.late


def add(assembler: TickAssembler[Entry, Entry], entry: Entry) -> None:
    """Add a message, which counts one byte, or a tick."""
    channel = assembler.channels[entry.channel]
    if entry.type == TICK:
        channel.add_tick(entry, entry.time)
    else:
        channel.add(entry, entry, entry.time, 1, ends_pack=entry.type == DROP)


def read(log: Log, assembler: TickAssembler[Entry, Entry], data: st.DataObject) -> list[TickedPack[Entry, Entry]]:
    """Read ``log`` in a drawn order, only channels that hold the pack back, until that is impossible."""
    places = dict.fromkeys(log, 0)
    packs: list[TickedPack[Entry, Entry]] = []
    while True:
        while (pack := assembler.next_pack()) is not None:
            packs.append(pack)
        readable = [name for name in assembler.behind() if places[name] < len(log[name])]
        if not readable:
            return packs
        name = data.draw(st.sampled_from(readable))
        count = data.draw(st.integers(1, 4))
        for entry in log[name][places[name] : places[name] + count]:
            add(assembler, entry)
        places[name] += count


@given(logs(), st.data())
def test_packs_depend_on_the_log_alone(log: Log, data: st.DataObject) -> None:
    assembler = TickAssembler[Entry, Entry](dict.fromkeys(log, -1))

    packs = read(log, assembler, data)

    assert [as_expected(pack, list(log)) for pack in packs] == expected_packs(log)
    assert [pack.begin_tick for pack in packs] == [-1, *[pack.end_tick for pack in packs[:-1]]][: len(packs)]


@given(logs(), st.data())
def test_the_same_packs_follow_wherever_reading_resumes(log: Log, data: st.DataObject) -> None:
    packs = read(log, TickAssembler[Entry, Entry](dict.fromkeys(log, -1)), data)
    expected = expected_packs(log)
    for number, pack in enumerate(packs, 1):
        rest = {name: entries[entries.index(pack.resume[name]) :] for name, entries in log.items()}

        again = read(rest, TickAssembler[Entry, Entry](dict.fromkeys(log, pack.end_tick)), data)

        assert [as_expected(each, list(log)) for each in again] == expected[number:]


@given(logs(), st.data())
def test_channels_ahead_of_the_pack_are_not_read(log: Log, data: st.DataObject) -> None:
    assembler = TickAssembler[Entry, Entry](dict.fromkeys(log, -1))
    read(log, assembler, data)

    for name in log:
        waiting = [each for each in log[name] if each.type != TICK]
        assert assembler.channels[name].size_bytes <= len(waiting)
    assert set(assembler.behind()) <= set(log)
    assert assembler.behind()


@given(logs(), st.data())
def test_merged_packs_are_those_of_the_log_and_resume_after_the_last(log: Log, data: st.DataObject) -> None:
    packs = read(log, TickAssembler[Entry, Entry](dict.fromkeys(log, -1)), data)
    if not packs:
        return
    merged = reduce(lambda first, following: first.merged(following), packs)
    times = [each.first_tick for each in packs if each.has_messages]

    assert (merged.begin_tick, merged.end_tick, merged.late) == (
        -1,
        packs[-1].end_tick,
        sum(each.late for each in packs),
    )
    for name in log:
        assert merged.messages[name] == [message for each in packs for message in each.messages[name]]
    assert merged.size_bytes == sum(map(len, merged.messages.values()))
    assert merged.resume == packs[-1].resume
    assert merged.first_tick == (times[0] if times else -1)
    assert merged.ends_early == packs[-1].ends_early
