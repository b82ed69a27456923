"""Idempotent producers over gRPC: repeated batches, gaps, reused sequences, takeovers. Method: real calls.

Promises of docs/reference/guarantees.md: G18, G20.
"""

import asyncio
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, ProducerSequence
from tidelog.v1 import error_pb2
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_testing.loads.workload import until
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.parts.grpc_calls import a_request, connected, refusal_in, running_server
from tidelog_testing.parts.stores import FaultyStore

client = client_with(orders=2)


async def test_a_repeated_batch_is_in_the_log_once_and_gets_its_first_result(client: AsyncClient) -> None:
    first = await client.append("orders/0", [b"a", b"b"], producer=ProducerSequence("p", 1))
    await client.append("orders/0", b"between")

    again = await client.append("orders/0", [b"a", b"b"], producer=ProducerSequence("p", 1))

    assert (again.first_tick, again.last_tick, again.duplicate) == (first.first_tick, first.last_tick, True)
    assert not first.duplicate
    assert await payloads(client, "orders/0") == [b"a", b"b", b"between"]


async def test_rich_messages_are_known_again_whatever_the_order_of_their_properties(client: AsyncClient) -> None:
    one = tidelog.Message(b"x", key=b"k", properties={"a": "1", "b": "2"})
    other = tidelog.Message(b"x", key=b"k", properties={"b": "2", "a": "1"})
    await client.append("orders/0", one, producer=ProducerSequence("p", 1))

    assert (await client.append("orders/0", other, producer=ProducerSequence("p", 1))).duplicate


async def test_sequences_are_counted_for_each_vchannel_and_producer(client: AsyncClient) -> None:
    results = [
        await client.append(vchannel, b"x", producer=ProducerSequence(name, 1))
        for vchannel in ("orders/0", "orders/1")
        for name in ("p", "q")
    ]

    assert not any(result.duplicate for result in results)


async def test_names_that_begin_with_an_underscore_are_the_servers_own(client: AsyncClient) -> None:
    with pytest.raises(tidelog.InvalidRequestError, match="does not begin with '_'") as caught:
        await client.append("orders/0", b"x", producer=ProducerSequence("_p", 1))
    assert caught.value.values == {"field": "producer_id"}
    with pytest.raises(tidelog.InvalidRequestError, match="is reserved"):
        await client.open_producer("orders/0", "_p")


async def test_a_gap_is_refused_with_what_was_expected(client: AsyncClient) -> None:
    await client.append("orders/0", b"1", producer=ProducerSequence("p", 1))

    with pytest.raises(tidelog.SequenceGapError, match="append the missing batches") as caught:
        await client.append("orders/0", b"3", producer=ProducerSequence("p", 3))

    assert (caught.value.sequence, caught.value.expected_sequence, caught.value.effect) == (3, 2, "none")
    await client.append("orders/0", b"2", producer=ProducerSequence("p", 2))
    assert await payloads(client, "orders/0") == [b"1", b"2"]


async def test_a_sequence_with_other_content_is_refused(client: AsyncClient) -> None:
    await client.append("orders/0", b"1", producer=ProducerSequence("p", 1))
    with pytest.raises(tidelog.SequenceReusedError):
        await client.append("orders/0", b"other", producer=ProducerSequence("p", 1))
    assert await payloads(client, "orders/0") == [b"1"]


async def test_what_is_older_than_the_window_is_known_to_be_there(client: AsyncClient) -> None:
    for number in range(1, 70):
        await client.append("orders/0", b"%d" % number, producer=ProducerSequence("p", number))

    with pytest.raises(tidelog.SequenceForgottenError) as caught:
        await client.append("orders/0", b"5", producer=ProducerSequence("p", 5))

    assert (caught.value.sequence, caught.value.oldest_sequence) == (5, 6)
    assert (await client.append("orders/0", b"6", producer=ProducerSequence("p", 6))).duplicate


async def test_whoever_takes_over_goes_on_and_fences_off_the_one_before(client: AsyncClient) -> None:
    orders = client.vchannel("orders/0")
    old = await orders.open_producer("loader")
    assert (old.epoch, old.last_sequence, old.last_tick) == (1, 0, 0)
    last = await orders.append([b"1a", b"1b"], producer=old.sequence(1))

    new = await orders.open_producer("loader")

    assert (new.epoch, new.last_sequence, new.last_tick) == (2, 1, last.last_tick)
    with pytest.raises(tidelog.ProducerFencedError) as caught:
        await orders.append(b"late", producer=old.sequence(2))
    assert (caught.value.epoch, caught.value.actual_epoch) == (1, 2)
    # Also a batch that it did append: a producer that is fenced off receives an error.
    with pytest.raises(tidelog.ProducerFencedError):
        await orders.append([b"1a", b"1b"], producer=old.sequence(1))
    await orders.append(b"2", producer=new.sequence(2))
    assert await payloads(client, "orders/0") == [b"1a", b"1b", b"2"]


async def test_a_repeated_batch_does_not_meet_its_conditions_again(client: AsyncClient) -> None:
    await client.fence("orders/0", 1)
    first = await client.append(
        "orders/0", b"x", producer=ProducerSequence("p", 1), expected_last_tick=0, fencing_token=1
    )
    await client.fence("orders/0", 2)

    again = await client.append(
        "orders/0", b"x", producer=ProducerSequence("p", 1), expected_last_tick=0, fencing_token=1
    )

    assert (again.first_tick, again.duplicate) == (first.first_tick, True)


@pytest.mark.parametrize(
    ("producer_id", "sequence", "epoch"), [("", 1, 0), ("é" * 33, 1, 0), ("p", 0, 0), ("p", 1, -1), ("p", 1 << 64, 0)]
)
def test_what_is_no_sequence_is_refused_at_once(producer_id: str, sequence: int, epoch: int) -> None:
    with pytest.raises(ValueError, match="producer"):
        ProducerSequence(producer_id, sequence, epoch)


async def test_all_of_it_stays_after_a_restart(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as node, AsyncClient(node.grpc_endpoint) as client:
        await client.create_channel("orders")
        position = await client.open_producer("orders", "p")
        first = await client.append("orders", b"1", producer=position.sequence(1))
        await client.append("orders", b"2", producer=position.sequence(2), durability="os")
    async with running_server(tmp_path / "data") as node, AsyncClient(node.grpc_endpoint) as client:
        again = await client.append("orders", b"1", producer=position.sequence(1))
        assert (again.first_tick, again.duplicate) == (first.first_tick, True)
        assert (await client.append("orders", b"2", producer=position.sequence(2))).duplicate
        with pytest.raises(tidelog.ProducerFencedError):
            await client.append("orders", b"x", producer=ProducerSequence("p", 3, epoch=0))
        assert (await client.open_producer("orders", "p")).last_sequence == 2
        assert await payloads(client, "orders") == [b"1", b"2"]


@pytest.mark.not_on_engine(reason="a log in an engine acknowledges `os` as `sync`")
async def test_a_repeated_batch_has_its_durability_also_after_a_restart(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as node, AsyncClient(node.grpc_endpoint) as client:
        await client.create_channel("orders")
        position = await client.open_producer("orders", "p")
        await client.append("orders", b"1", producer=position.sequence(1), durability="os")
    async with running_server(tmp_path / "data") as node, AsyncClient(node.grpc_endpoint) as client:
        assert (await client.append("orders", b"1", producer=position.sequence(1))).durability == "os"


def numbered(number: int, request_id: int) -> wal.AppendStreamRequest:
    request = a_request("orders", b"%d" % number, request_id=request_id)
    request.options.producer.CopyFrom(wal.ProducerSequence(producer_id="p", sequence=number))
    return request


async def test_a_stream_carries_numbered_batches_and_their_repetitions_in_flight() -> None:
    store = FaultyStore()
    async with running_server(store=store) as node, connected(node) as client:
        await client.create("orders")
        store.may_sync.clear()
        # All of them are taken before any is durable.
        numbers = [1, 2, 2, 1, 3, 5, 4]
        asking = asyncio.ensure_future(
            client.append_all([numbered(number, index + 1) for index, number in enumerate(numbers)])
        )
        producers = node._log.shared.producers
        await until(
            lambda: (window := producers.window((1, "p"))) is not None and window.last_sequence == 4, 10, "taken"
        )
        store.may_sync.set()
        answers = await asking

        kinds = [answer.WhichOneof("answer") for answer in answers]
        assert kinds == ["result", "result", "result", "result", "result", "error", "result"]
        assert refusal_in(answers[5]).reason == error_pb2.REASON_SEQUENCE_GAP
        assert [answer.result.duplicate for answer in answers] == [False, False, True, True, False, False, False]
        assert answers[2].result.first_tick == answers[1].result.first_tick
        assert [payload for _, _, payload in await client.rows("orders")] == [b"1", b"2", b"3", b"4"]
