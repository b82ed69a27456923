"""Messages of mailboxes on the wire, and leases of a worker. Method: the pure parts, with times as inputs."""

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import DeadLetter, DeliveryStatus, OutgoingMessage, SendResult
from tidelog.mailboxes.deliveries import DeliveryFields
from tidelog.mailboxes.feed import WorkerSettings
from tidelog.mailboxes.leases import LeaseTable
from tidelog.mailboxes.types import duration_ms, send_results
from tidelog.v1 import mailbox_service_pb2 as pb

ID = 1_700_000_000_123 << 18 | 5


def test_a_message_is_encoded_with_what_is_set() -> None:
    due = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    wire = OutgoingMessage(b"x", {"a": "b"}, due=due, priority=2, group="g", dedup_key="k", ttl=1.5).to_wire()

    assert (wire.body, dict(wire.headers), wire.priority, wire.group, wire.dedup_key) == (b"x", {"a": "b"}, 2, "g", "k")
    assert (wire.due_ms, wire.ttl_ms) == (1_767_323_045_000, 1_500)
    assert OutgoingMessage(b"", delay=timedelta(seconds=2)).to_wire().delay_ms == 2_000
    plain = OutgoingMessage(b"x").to_wire()
    assert plain.WhichOneof("due") is None
    assert not plain.HasField("ttl_ms")


def test_contradictions_and_times_without_zone_are_refused() -> None:
    with pytest.raises(ValueError, match="delay and due are both set"):
        OutgoingMessage(b"", delay=1, due=datetime.now(UTC)).to_wire()
    with pytest.raises(ValueError, match="no time zone"):
        OutgoingMessage(b"", due=datetime(2026, 1, 1)).to_wire()  # noqa: DTZ001 - that is the point
    with pytest.raises(TypeError, match="the body is of type NoneType, expected bytes"):
        OutgoingMessage(cast("bytes", None)).to_wire()
    with pytest.raises(TypeError, match="expected seconds or a timedelta"):
        duration_ms("delay", "5")  # type: ignore[arg-type]  # the claim


def test_results_of_a_send_mark_duplicates() -> None:
    results = send_results(pb.SendResponse(ids=[7, 8, 9], duplicates=[1]))

    assert results == [SendResult(7), SendResult(8, duplicate=True), SendResult(9)]


def test_a_delivery_has_what_the_server_sent() -> None:
    wire = pb.Delivery(
        id=ID, lock_id=b"\xab" * 20, body=b"x", delivery_count=2, headers={"a": "b"}, due_ms=1_700_000_001_000,
        priority=3, group="g", status=pb.DELIVERY_STATUS_TIMEOUT,
        dead_letter=pb.DeadLetter(mailbox="m", id=4, delivery_count=5),
    )  # fmt: skip
    delivery = DeliveryFields("jobs", wire, 1_700_000_031_000)

    assert (delivery.mailbox, delivery.id, delivery.body, delivery.delivery_count) == ("jobs", ID, b"x", 2)
    assert (delivery.headers, delivery.priority, delivery.group) == ({"a": "b"}, 3, "g")
    assert (delivery.lock_id, delivery.status) == ("ab" * 20, DeliveryStatus.TIMEOUT)
    assert delivery.dead_letter == DeadLetter("m", 4, 5)
    assert delivery.received_at == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert (delivery.due, delivery.leased_until) == tuple(
        datetime(2023, 11, 14, 22, 13, second, tzinfo=UTC) for second in (21, 51)
    )


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"prefetch": -1}, {"lease": 0.001}, {"concurrency": 10_001}])
def test_options_of_a_worker_are_checked(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        WorkerSettings(**options)  # type: ignore[arg-type]  # the claim


def test_a_lease_is_valid_until_its_end_and_from_the_request_of_its_extension() -> None:
    table = LeaseTable(30.0)
    table.add([b"a", b"b"], 100.0)
    table.extended([b"a", b"gone"], 110.0)

    assert table.next_end_s() == 130.0
    assert not table.is_valid(b"b", 130.0)
    assert table.is_valid(b"a", 139.9)
    assert table.take_ended(135.0) == [b"b"]
    assert len(table) == 1
    table.remove(b"a")
    assert not table.is_valid(b"a", 101.0)


@given(st.lists(st.tuples(st.sampled_from(["add", "extend", "remove", "end"]), st.integers(0, 3), st.integers(0, 9))))
def test_no_lease_is_valid_longer_than_one_duration_after_its_last_request(
    steps: list[tuple[str, int, int]],
) -> None:
    table, now_s, last_s = LeaseTable(10.0), 0.0, dict[bytes, float]()
    for kind, lock_number, pause_s in steps:
        lock = b"%d" % lock_number
        now_s += pause_s
        if kind == "add" and lock not in last_s:
            table.add([lock], now_s)
            last_s[lock] = now_s
        elif kind == "extend":
            table.extended([lock], now_s)
            last_s = {each: now_s if each == lock else since_s for each, since_s in last_s.items()}
        elif kind == "remove":
            table.remove(lock)
            last_s.pop(lock, None)
        else:
            ended = {each for each, since_s in last_s.items() if since_s + 10.0 <= now_s}
            assert set(table.take_ended(now_s)) == ended
            last_s = {each: since_s for each, since_s in last_s.items() if each not in ended}
        assert len(table) == len(last_s)
        for each, since_s in last_s.items():
            assert table.is_valid(each, now_s) == (since_s + 10.0 > now_s)
