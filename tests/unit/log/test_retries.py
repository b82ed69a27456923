"""Retries of numbered appends while the first one is in flight."""

import sys
from collections.abc import Awaitable, Callable

import pytest

from tidelog_server.core.producers import ProducerSequence
from tidelog_server.log.batch import AppendOptions, Batch
from tidelog_server.txn.inline import TxnAppend, TxnPart
from tidelog_testing.parts.batches import a_batch
from tidelog_testing.parts.nodes import Node, Submitted, running_node
from tidelog_testing.parts.stores import FaultyStore

FIRST = ProducerSequence("p", 0, 1)


async def a_batch_append(node: Node, batch: Batch) -> Submitted:
    return await node.submit("a", batch, producer=FIRST)


async def a_transaction(node: Node, batch: Batch) -> Submitted:
    parts = [TxnPart(*node.directory.find("a"), [batch])]
    submitted = Submitted(lambda settle: TxnAppend(node.log.shared, parts, AppendOptions(producer=FIRST), settle))
    await submitted.submit(node.log.shared)
    return submitted


@pytest.mark.parametrize("submit", [a_batch_append, a_transaction])
async def test_a_retry_that_waits_keeps_no_columns(submit: Callable[[Node, Batch], Awaitable[Submitted]]) -> None:
    async with running_node(FaultyStore()) as node:
        await node.create("a")
        first, batch = await submit(node, a_batch(b"x" * 1_000)), a_batch(b"x" * 1_000)
        columns = batch.columns
        retry = await submit(node, batch)
        assert retry.append.is_duplicate
        assert not retry.append.settled
        del batch
        # The name, and the argument of this call.
        assert sys.getrefcount(columns) == 2
        assert await retry.acknowledged() == await first.acknowledged()
