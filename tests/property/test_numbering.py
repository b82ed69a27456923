"""A producer's messages are in the log once and in order, for any number of broken connections and refusals.

Method: the client's queue against a model of a server with a list for each producer. Streams lose requests in flight at
any point, and old requests may reach the server after new ones.

Promises of docs/reference/guarantees.md: G19.
"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import AppendResult, ShutdownError, TidelogError
from tidelog.append.numbering import Numbering
from tidelog.append.queue import Submission
from tidelog.wire.append_terms import DEFAULT_TERMS
from tidelog_testing.parts.append_queues import LOST, Network, NumberedServer

VCHANNELS = ("a/0", "b/0")
_LARGE_BYTES = 1 << 16


class World(Network):
    """A client with producers, a server, and the streams between them."""

    def __init__(self) -> None:
        self.server = NumberedServer()
        super().__init__(self.server)
        self.numberings = {name: Numbering() for name in VCHANNELS}
        self.submitted: dict[str, list[bytes]] = {name: [] for name in VCHANNELS}
        self.futures: list[tuple[str, list[bytes], asyncio.Future[AppendResult]]] = []

    def submit(self, vchannel: str, count: int) -> None:
        begin = len(self.submitted[vchannel])
        messages = [b"%d" % number for number in range(begin, begin + count)]
        self.submitted[vchannel] += messages
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self.futures.append((vchannel, messages, future))
        # Declared large, so that it does not wait for responses to earlier requests.
        submission = Submission(messages, True, _LARGE_BYTES, future)
        self.queue.submit(vchannel, DEFAULT_TERMS, submission, self.numberings[vchannel])

    def burst(self, vchannel: str, count: int) -> None:
        """Submit and send a number of batches, of one message, of two, and so on."""
        for number in range(count):
            self.submit(vchannel, 1 + number)
        self.send(count)

    def refuse(self, count: int) -> None:
        """Make the server refuse all further requests, as during shutdown, and deliver the refusals."""
        for _ in range(min(count, len(self.stream.requests))):
            self.server.serve(self.stream, ShutdownError("no"))
        self.answer(len(self.stream.answers))

    def forget(self) -> None:
        """Make the server forget all producers, as it does only with idle ones, and continue.

        The first batch of each is not lost in flight: otherwise it would be unknown whether it was accepted before.
        """
        if self.queue.is_idle:
            self.cut_off.clear()
            self.server.results.clear()
            for vchannel in VCHANNELS:
                self.burst(vchannel, 2)
            self.finish(cuts=False)

    def finish(self, *, cuts: bool = True) -> None:
        """Deliver all requests and responses over a working network."""
        if cuts:
            self.cut()
        for _ in range(10_000):
            if self.queue.is_idle:
                return
            self.send(1)
            self.serve(1)
            self.answer(1)
        pytest.fail("something is never answered")


COUNTS = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.just("burst"), st.sampled_from(VCHANNELS), COUNTS),
    st.tuples(st.sampled_from(["send", "serve", "answer", "refuse"]), COUNTS),
    st.sampled_from([("cut",), ("cut",), ("serve_late",), ("forget",), ("finish",)]),
)


@given(st.lists(STEPS, min_size=10, max_size=80))
def test_every_message_is_in_the_log_once_and_in_order(steps: list[tuple[str, ...]]) -> None:
    async def play() -> None:
        world = World()
        for name, *arguments in steps:
            getattr(world, name)(*arguments)
        world.finish()

        assert {name: world.server.log[name] for name in VCHANNELS} == world.submitted
        for vchannel, messages, future in world.futures:
            result = future.result()
            assert world.server.log[vchannel][result.first_tick : result.last_tick + 1] == messages

    asyncio.run(play())


@given(st.lists(STEPS, min_size=10, max_size=60), st.integers(1, 10))
def test_what_is_given_up_is_there_or_not_as_its_error_says(steps: list[tuple[str, ...]], served: int) -> None:
    async def play() -> None:
        world = World()
        for name, *arguments in steps:
            getattr(world, name)(*arguments)
        world.queue.give_up(ShutdownError("over"), LOST)
        # Requests still in flight may arrive or be lost.
        world.cut_off.append(world.stream)
        for _ in range(served):
            world.serve_late()

        assert world.queue.is_idle
        for vchannel in VCHANNELS:
            log = world.server.log[vchannel]
            assert log == world.submitted[vchannel][: len(log)]
            for where, messages, future in world.futures:
                if where != vchannel:
                    continue
                error = future.exception()
                assert error is None or isinstance(error, TidelogError)
                if error is None:
                    assert set(messages) <= set(log)
                elif error.effect == "none":
                    assert not set(messages) & set(log)

    asyncio.run(play())
