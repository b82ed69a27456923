"""Fetches of an Operate stream are answered, whatever their messages are."""

from collections.abc import Coroutine
from typing import Any

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.v1.error_pb2 import REASON_DATA_LOSS
from tidelog_server.rpc.services.mailboxes.calls import MessageCalls
from tidelog_server.rpc.services.mailboxes.fetch_answers import FetchAnswers, Slot
from tidelog_testing.parts.mailbox_nodes import fetching, running_mailboxes, sending
from tidelog_testing.parts.stores import CrashingStore


async def test_an_unreadable_message_refuses_its_fetch_and_releases_the_memory() -> None:
    answers: list[tuple[bytes, int]] = []

    def add(encoded: bytes, slot: Slot, taken_bytes: int = 0) -> None:
        answers.append((encoded, taken_bytes))

    def start(coroutine: Coroutine[Any, Any, None]) -> None:
        raise AssertionError(f"{coroutine} was started")

    async with running_mailboxes(CrashingStore()) as node:
        log = await node.create("jobs")
        await log.run(sending(b"x"))
        fetched = await log.run(fetching())
        log.recent._steps[fetched.grants[0].place] = [b"\xff" * 20]
        memory = node.mailboxes.shared.node.read_budget.memory("reader")
        fetches = FetchAnswers(MessageCalls(node.mailboxes, lambda _: ""), memory, add, start)
        fetches.put(Slot(7, 100), log, fetched)

        [(encoded, taken_bytes)] = answers
        [result] = pb.OperateResponse.FromString(encoded).results
        assert (result.number, result.error.detail.reason) == (7, REASON_DATA_LOSS)
        fetches.note_written(taken_bytes)
        assert memory.holds_nothing
        fetches.close()
