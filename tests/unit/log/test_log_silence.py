"""While the engine of the log is silent, changes are refused without an effect, and all of it recovers by itself.

Method: a node on an engine store, over a log in a folder that a test makes silent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tidelog_server.core.errors import Effect
from tidelog_server.core.errors.storage import LogSilentError
from tidelog_testing.parts.batches import a_batch
from tidelog_testing.parts.engine_stores import SilentEngine, create_log, open_on
from tidelog_testing.parts.nodes import Node, running_node

# Longer than a busy machine holds up a write that the engine confirms at once.
_SILENT_S = 1.0


@pytest.fixture
def engine(tmp_path: Path) -> SilentEngine:
    create_log(SilentEngine(tmp_path / "log"))
    return SilentEngine(tmp_path / "log")


@pytest.fixture
async def node(engine: SilentEngine, tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(open_on(engine, tmp_path / "view")) as running:
        watching = asyncio.create_task(running.log.watch_log(_SILENT_S))
        yield running
        engine.may_answer.set()
        watching.cancel()
        assert not running.failures


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def test_changes_are_refused_during_the_silence_and_accepted_after_it(node: Node, engine: SilentEngine) -> None:
    await node.create("a")
    await node.append("a", a_batch(b"1"))
    assert not node.log.admission.silent_s
    engine.may_answer.clear()
    in_flight = await node.submit("a", a_batch(b"2"))
    await until(lambda: node.log.admission.silent_s)
    for change in (lambda: node.append("a", a_batch(b"3")), lambda: node.create("b")):
        with pytest.raises(LogSilentError, match="has not confirmed a write for") as refused:
            await change()
        assert refused.value.effect is Effect.NONE
    # Reads continue.
    (vchannel,) = node.directory.find_channel("a").vchannels
    assert len(node.log.store.read(vchannel.vchannel_id, 0, 1 << 62, 1 << 20)) == 1
    engine.may_answer.set()
    assert (await in_flight.outcome()).failure is None
    await until(lambda: not node.log.admission.silent_s)
    await node.append("a", a_batch(b"3"))
    assert len(node.log.store.read(vchannel.vchannel_id, 0, 1 << 62, 1 << 20)) == 3


async def test_a_change_that_nothing_waits_for_is_no_silence(node: Node) -> None:
    store = node.log.store
    await node.create("a")
    for change in (node.log.committer.run, node.log.committer.write):
        await change(lambda: store.discard({(1, 50): 1}))
        assert store.unconfirmed_s() == 0.0


async def test_a_short_wait_is_no_silence(node: Node, engine: SilentEngine) -> None:
    await node.create("a")
    engine.may_answer.clear()
    in_flight = await node.submit("a", a_batch(b"1"))
    assert node.log.store.unconfirmed_s() < _SILENT_S
    assert not node.log.admission.silent_s
    engine.may_answer.set()
    assert (await in_flight.outcome()).failure is None
    assert node.log.store.unconfirmed_s() == 0.0
