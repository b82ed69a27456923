"""A broadcast is on each of its vchannels once, at one tick, under its keys until it is finished, across restarts.

Method: random broadcasts, retries, acknowledgements, aborts, destroyed channels and restarts on a node whose store and
metadata outlive it, against a model that is a table of broadcasts. Some restarts are crashes, at any moment: the
metadata then accepts a few more commits and no others.

Promises of docs/reference/guarantees.md: G26, G28.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.broadcast.admission import BroadcastRequest
from tidelog_server.broadcast.records import Tombstone
from tidelog_server.broadcast.rows import LOGGED
from tidelog_server.broadcast.table import Task
from tidelog_server.core.broadcasts import BroadcastState, ResourceKey
from tidelog_server.core.errors import BroadcastReusedError, ChannelNotExistError, ResourceAcquiredError
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.metadata.store import Change
from tidelog_testing.parts.broadcasts import a_broadcast, a_key, in_log
from tidelog_testing.parts.nodes import Node, running_node
from tidelog_testing.parts.stores import LastingStore

CHANNELS = {"a": 2, "b": 1}
VCHANNELS = ("a/0", "a/1", "b/0")
OPEN, DONE, ABORTED = "open", "done", "aborted"


@dataclass(frozen=True)
class Send:
    """A broadcast, under a new id."""

    vchannels: tuple[str, ...]
    keys: tuple[ResourceKey, ...]


@dataclass(frozen=True)
class Repeat:
    """Retry an earlier broadcast, chosen by number, perhaps with another message."""

    number: int
    is_other: bool


@dataclass(frozen=True)
class Acknowledge:
    """Acknowledge for a bitmap of vchannels of a broadcast, chosen by number."""

    number: int
    bits: int


@dataclass(frozen=True)
class Abort:
    """Abort a broadcast, chosen by number."""

    number: int


@dataclass(frozen=True)
class Destroy:
    """Destroy channel b and re-create it: a new channel under the old name."""


@dataclass(frozen=True)
class Restart:
    """Stop the node and start another one; broadcasts in progress are cut off after a number of further commits."""

    sends: tuple[Send, ...]
    commits: int


key_sets = st.dictionaries(st.sampled_from("xy"), st.booleans(), max_size=2).map(
    lambda modes: tuple(a_key(name, shared=is_shared) for name, is_shared in sorted(modes.items()))
)
lanes = st.lists(st.sampled_from(VCHANNELS), min_size=1, unique=True).map(tuple)
sends = st.builds(Send, lanes, key_sets)
numbers = st.integers(0, 9)
steps = st.lists(
    sends
    | st.builds(Repeat, numbers, st.booleans())
    | st.builds(Acknowledge, numbers, st.integers(1, 7))
    | st.builds(Abort, numbers)
    | st.builds(Destroy)
    | st.builds(Restart, st.lists(sends, max_size=3).map(tuple), st.integers(0, 6)),
    max_size=20,
)


class CutMetadata(MemoryMetadataStore):
    """Accepts ``commits_left`` commits; all later ones never complete."""

    def __init__(self) -> None:
        super().__init__()
        self.commits_left: int | None = None
        self.was_cut = asyncio.Event()

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        if self.commits_left is not None:
            if self.commits_left == 0:
                self.was_cut.set()
                await asyncio.Event().wait()
            self.commits_left -= 1
        return await super().commit(changes, is_before_log=is_before_log)


@dataclass
class Sent:
    """A broadcast of the model; its tick is 0 while its acceptance is unknown."""

    request: BroadcastRequest
    broadcast_id: int
    tick: int = 0
    acked: set[str] = field(default_factory=set)
    state: str = OPEN

    @property
    def missing(self) -> set[str]:
        return set(self.request.vchannels) - self.acked


@dataclass
class Model:
    """The accepted broadcasts, and the expected state of each.

    Attributes:
        in_b: Broadcasts in the log of the current channel b.
    """

    sent: list[Sent] = field(default_factory=list)
    in_b: set[int] = field(default_factory=set)

    def chosen(self, number: int) -> Sent | None:
        return self.sent[number % len(self.sent)] if self.sent else None

    def conflicts(self, keys: Sequence[ResourceKey]) -> bool:
        held = [key for each in self.sent if each.state == OPEN for key in each.request.resource_keys]
        return any(one.name == key.name and not (one.is_shared and key.is_shared) for one in held for key in keys)

    async def do(self, node: Node, step: object) -> None:
        match step:
            case Send():
                await self.send(node, step)
            case Repeat():
                await self.repeat(node, step)
            case Acknowledge():
                await self.acknowledge(node, step)
            case Abort():
                await self.abort(node, step)
            case _:
                await self.destroy(node)

    async def request(self, node: Node, step: Send) -> BroadcastRequest:
        broadcast_id = await node.log.shared.oracle.allocate(1)
        return a_broadcast(step.vchannels, b"%d" % broadcast_id, keys=step.keys, broadcast_id=broadcast_id)

    def accept(self, request: BroadcastRequest, tick: int) -> None:
        self.sent.append(Sent(request, request.broadcast_id, tick))
        if "b/0" in request.vchannels:
            self.in_b.add(request.broadcast_id)

    async def send(self, node: Node, step: Send) -> None:
        request = await self.request(node, step)
        try:
            result = await node.broadcasts.broadcast(request)
        except ResourceAcquiredError:
            assert self.conflicts(step.keys)
            return
        assert not self.conflicts(step.keys)
        assert not result.is_duplicate
        self.accept(request, result.tick)

    async def repeat(self, node: Node, step: Repeat) -> None:
        if (sent := self.chosen(step.number)) is None:
            return
        request = sent.request
        if step.is_other:
            request = a_broadcast(request.vchannels, b"other", broadcast_id=sent.broadcast_id)
        try:
            result = await node.broadcasts.broadcast(request)
        except BroadcastReusedError:
            assert step.is_other
        else:
            assert not step.is_other
            assert result == (sent.broadcast_id, sent.tick, True)

    async def acknowledge(self, node: Node, step: Acknowledge) -> None:
        if (sent := self.chosen(step.number)) is None:
            return
        names = [name for bit, name in enumerate(sent.request.vchannels) if step.bits >> bit & 1]
        await node.broadcasts.acks.ack(sent.broadcast_id, names)
        self.note_acked(sent, names)

    def note_acked(self, sent: Sent, names: Sequence[str]) -> None:
        if sent.state == OPEN:
            sent.acked.update(names)
            sent.state = OPEN if sent.missing else DONE

    async def abort(self, node: Node, step: Abort) -> None:
        if (sent := self.chosen(step.number)) is None:
            return
        found = await node.broadcasts.abort(sent.broadcast_id, "why")
        if sent.state == OPEN:
            sent.state = ABORTED
        assert found.state == sent.state

    async def destroy(self, node: Node) -> None:
        await node.lifecycle.destroy(["b"], ignore_missing=False)
        for sent in self.sent:
            if "b/0" in sent.request.vchannels:
                self.note_acked(sent, ["b/0"])
        self.in_b.clear()
        await node.create("b", 1)

    async def cut_off(self, node: Node, metadata: CutMetadata, step: Restart) -> list[BroadcastRequest]:
        """Start broadcasts that a crash interrupts, and return them."""
        metadata.commits_left = step.commits
        requests = [await self.request(node, send) for send in step.sends]
        running = [asyncio.create_task(node.broadcasts.broadcast(request)) for request in requests]
        if running:
            cut = asyncio.create_task(metadata.was_cut.wait())
            answered = asyncio.ensure_future(asyncio.wait(running))
            await asyncio.wait([cut, answered], return_when=asyncio.FIRST_COMPLETED)
            for task in (cut, *running):
                task.cancel()
            await asyncio.gather(cut, answered, *running, return_exceptions=True)
        for request, task in zip(requests, running, strict=True):
            if not task.cancelled() and task.exception() is None:
                self.accept(request, task.result().tick)
        return requests

    async def find_out(self, node: Node, requests: Sequence[BroadcastRequest]) -> None:
        """Find out which interrupted broadcasts were accepted."""
        known = {sent.broadcast_id for sent in self.sent}
        for request in requests:
            found = node.broadcasts.table.find(request.broadcast_id)
            if request.broadcast_id not in known and found is not None:
                assert isinstance(found, Task)
                assert found.state is BroadcastState.WAIT_ACK
                self.accept(request, found.durable.tick)

    def check(self, node: Node) -> None:
        """Compare the model with the node."""
        for name in VCHANNELS:
            expected = sorted(
                (sent.tick, sent.broadcast_id)
                for sent in self.sent
                if name in sent.request.vchannels and (name != "b/0" or sent.broadcast_id in self.in_b)
            )
            assert [(tick, broadcast_id) for broadcast_id, tick, _ in in_log(node, name)] == expected
        saver = node.broadcasts._saver
        for sent in self.sent:
            found = saver.table.find(sent.broadcast_id)
            assert isinstance(found, Task if sent.state == OPEN else Tombstone)
            if isinstance(found, Task):
                assert {name for name, has_acked in found.acknowledgements() if not has_acked} == sent.missing
            else:
                assert found.state == sent.state
            assert saver.keys.holds(sent.broadcast_id) == (sent.state == OPEN)
        assert len(saver.table.open) + len(saver.table.tombstones) == len(self.sent)


async def run(plan: Sequence[object]) -> None:
    store, metadata, model = LastingStore(), CutMetadata(), Model()
    remaining, interrupted, is_new = list(plan), list[BroadcastRequest](), True
    while is_new or remaining or interrupted:
        metadata.commits_left = None
        metadata.was_cut.clear()
        async with running_node(store, metadata=metadata) as node:
            if is_new:
                for name, count in CHANNELS.items():
                    await node.create(name, count)
            is_new = False
            await model.find_out(node, interrupted)
            interrupted = []
            model.check(node)
            while remaining:
                step = remaining.pop(0)
                if isinstance(step, Restart):
                    interrupted = await model.cut_off(node, metadata, step)
                    break
                await model.do(node, step)
                model.check(node)
            assert node.task_failures == []
    assert len(store.rows(LOGGED)) <= len(model.sent)


@given(steps)
def test_broadcasts_are_what_a_table_of_them_would_be(plan: list[object]) -> None:
    try:
        asyncio.run(run(plan))
    except ChannelNotExistError as error:
        raise AssertionError("a channel is missing") from error
