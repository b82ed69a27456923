"""Numbers of a producer on a channel: what is sent again after a crash has the numbers that it had.

Method: a model of the server's windows, calls that are cut short at any part, and processes that begin again.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.append.numbered_channel import NUMBERED_KEPT, NumberedChannel, NumberedChannels
from tidelog.errors import InvalidRequestError

VCHANNELS = 3


@dataclass
class Server:
    """The windows of one producer, and the calls whose parts are in the log of each vchannel."""

    sequences: list[int] = field(default_factory=lambda: [0] * VCHANNELS)
    calls: list[int] = field(default_factory=lambda: [0] * VCHANNELS)
    log: list[list[int]] = field(default_factory=lambda: [[] for _ in range(VCHANNELS)])

    def append(self, index: int, sequence: int, call: int) -> None:
        if sequence == self.sequences[index]:
            assert self.log[index][-1] == call, "a repeated number has other content"
            return
        assert sequence == self.sequences[index] + 1, "a gap"
        self.sequences[index], self.calls[index] = sequence, call
        self.log[index].append(call)

    def opened(self) -> NumberedChannel:
        return NumberedChannel("orders", self.sequences, self.calls)


parts = st.sets(st.integers(0, VCHANNELS - 1), min_size=1).map(sorted)
# The vchannels of each call; and how often it is cut short, after how many parts have arrived, answered or not.
cuts = st.lists(st.tuples(st.integers(0, VCHANNELS), st.integers(0, VCHANNELS), st.booleans()), max_size=3)


def play(
    server: Server, producer: NumberedChannel, number: int, indices: list[int], arrived: int = 99, answered: int = 99
) -> None:
    """Make a call of which only the first parts arrive, and fewer are answered."""
    with producer.call(number, indices) as sequences:
        for place, (index, sequence) in enumerate(zip(indices, sequences, strict=True)):
            if place < arrived:
                server.append(index, sequence, number)
                if place < answered:
                    producer.acknowledged(index)


@given(st.lists(st.tuples(parts, cuts), max_size=12))
def test_each_part_is_there_once_however_often_a_call_is_cut_short(
    calls: list[tuple[list[int], list[tuple[int, int, bool]]]],
) -> None:
    server = Server()
    producer = server.opened()
    for number, (indices, interruptions) in enumerate(calls, 1):
        for arrived, answered, dies in interruptions:
            play(server, producer, number, indices, arrived, answered)
            if dies:
                producer = server.opened()
                # It begins with the call that may be there in part.
                assert producer.complete_call in (number - 1, number - 2)
                for again in range(producer.complete_call + 1, number):
                    play(server, producer, again, calls[again - 1][0])
        play(server, producer, number, indices)
        assert producer.complete_call == number

    for index, log in enumerate(server.log):
        assert log == [number for number, (indices, _) in enumerate(calls, 1) if index in indices]


def test_calls_are_made_one_after_the_other() -> None:
    producer = Server().opened()

    with (
        producer.call(1, [0]),
        pytest.raises(InvalidRequestError, match=r"append 1 .* is in progress"),
        producer.call(2, [0]),
    ):
        pass
    with pytest.raises(InvalidRequestError, match="has the number 2, expected 1"), producer.call(2, [0]):
        pass
    with producer.call(1, [0]) as sequences:
        producer.acknowledged(0)
    assert sequences == [1]
    # The last one may be repeated.
    with producer.call(1, [0]) as sequences:
        pass
    assert sequences == [1]
    with producer.call(2, [0, 1]) as sequences:
        pass
    assert sequences == [2, 1]


def test_a_client_remembers_a_bounded_number_of_producers() -> None:
    channels = NumberedChannels()
    for number in range(NUMBERED_KEPT + 1):
        channels.put(f"p{number}", Server().opened())

    assert channels.get("orders", "p0") is None
    assert channels.get("orders", "p1") is not None
