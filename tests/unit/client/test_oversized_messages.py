"""What a server refuses for its size is left out of a numbered batch (D-163). Method: as ``test_append_queue``."""

import asyncio
from typing import Any, Final

import pytest

from tidelog import AppendUnknownError, InvalidRequestError, SequenceGapError
from tidelog.append.numbering import Numbering
from tidelog.append.queue import Submission
from tidelog.append.queues import AppendQueues
from tidelog.wire.append_terms import DEFAULT_TERMS
from tidelog_testing.parts.append_queues import a_queue, answer, next_numbered, payloads_of


def submit_several(queue: AppendQueues, numbering: Numbering, *payloads: bytes) -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    # So large that none waits for an answer.
    submission = Submission(payloads, True, 66_000, future, is_divisible=True)
    queue.submit("a/0", DEFAULT_TERMS, submission, numbering)
    return future


def too_large(max_bytes: int) -> InvalidRequestError:
    return InvalidRequestError("too large", values={"bytes": "9", "max_bytes": str(max_bytes), "index": "0"})


GAP: Final = SequenceGapError("gap", values={"expected_sequence": "2"})


async def test_what_is_too_large_is_left_out_and_the_rest_keeps_place_and_sequences() -> None:
    queue, numbering = a_queue(), Numbering()
    rows = [(b"a",), (b"b", b"large!", b"c"), (b"larger!", b"large!"), (b"d",)]
    futures = [submit_several(queue, numbering, *row) for row in rows]
    sent = [next_numbered(queue) for _ in range(4)]
    behind = submit_several(queue, numbering, b"e")

    answer(queue, sent[0], 1)
    answer(queue, sent[1], 0, too_large(5))
    answer(queue, sent[2], 0, too_large(5))
    answer(queue, sent[3], 0, GAP)
    again = [next_numbered(queue) for _ in range(3)]

    assert [(batch.sequence, payloads_of(batch)) for batch in again] == [(2, [b"b", b"c"]), (3, [b"d"]), (4, [b"e"])]
    for tick, batch in zip((2, 4, 5), again, strict=True):
        answer(queue, batch, tick)
    shared = futures[1].result()
    assert [shared.part(index, index + 1).first_tick for index in (0, 2)] == [2, 3]
    for outcome, index in ((shared, 1), (futures[2].result(), 0), (futures[2].result(), 1)):
        with pytest.raises(InvalidRequestError, match=r"has [67] bytes, the server takes at most 5"):
            outcome.part(index, index + 1)
    assert (futures[3].result().first_tick, behind.result().first_tick) == (4, 5)
    assert queue.is_idle


async def test_a_second_limit_leaves_out_more_of_a_batch() -> None:
    queue, numbering = a_queue(), Numbering()
    future = submit_several(queue, numbering, b"large!", b"a", b"mid", b"b")

    answer(queue, next_numbered(queue), 0, too_large(5))
    answer(queue, next_numbered(queue), 0, too_large(2))
    answer(queue, next_numbered(queue), 7)

    outcome = future.result()
    assert [outcome.part(index, index + 1).first_tick for index in (1, 3)] == [7, 8]
    assert list(outcome.refused) == [0, 2]


async def test_a_batch_that_may_be_in_the_log_is_not_divided() -> None:
    queue, numbering = a_queue(), Numbering()
    future = submit_several(queue, numbering, b"a", b"large!")
    next_numbered(queue)
    queue.interrupted(AppendUnknownError("lost", effect="unknown"))

    answer(queue, next_numbered(queue), 0, too_large(5))

    error = future.exception()
    assert isinstance(error, InvalidRequestError)
    assert error.effect == "unknown"
    assert queue.is_idle
