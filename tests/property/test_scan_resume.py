"""A merged scan that stops anywhere and is resumed delivers each message once per vchannel.

Method: random appends, transactions and broadcasts on several vchannels of a real server. A scan stops after every
possible number of batches, and another one starts at its positions; the messages of both are compared with the log.

Promises of docs/reference/guarantees.md: G10.
"""

from collections.abc import Iterator, Sequence
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog import At, Client, Positions, Scan
from tidelog.testing import start_server

# Target vchannels, and the number of messages to each; None for a broadcast.
Write = tuple[Sequence[int], int | None]
_numbers = count()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with start_server() as server, Client(server.endpoint) as client:
        yield client


def writes(vchannels: int) -> st.SearchStrategy[list[Write]]:
    lanes = st.lists(st.integers(0, vchannels - 1), min_size=1, max_size=vchannels, unique=True)
    # Twice as frequent as batches, because only broadcasts share ticks.
    sizes = st.one_of(st.none(), st.none(), st.integers(1, 3))
    return st.lists(st.tuples(lanes, sizes), min_size=1, max_size=8)


logs = st.integers(1, 4).flatmap(lambda vchannels: st.tuples(st.just(vchannels), writes(vchannels)))


def fill(client: Client, vchannels: int, log: Sequence[Write]) -> str:
    """Write to a new channel, and return its name."""
    name = f"c{next(_numbers)}"
    client.create_channel(name, vchannels=vchannels)
    for number, (lanes, size) in enumerate(log):
        names = [f"{name}/{lane}" for lane in lanes]
        if size is None:
            client.broadcast(names, b"%d" % number)
            continue
        with client.txn() as txn:
            for vchannel in names:
                txn.append(vchannel, [b"%d.%d" % (number, index) for index in range(size)])
    return name


def taken(scan: Scan, batches: int | None = None) -> list[tuple[str, int, bytes]]:
    found: list[tuple[str, int, bytes]] = []
    for index, batch in enumerate(scan, 1):
        found += [(batch.vchannel, message.tick, message.payload) for message in batch]
        if index == batches:
            break
    return found


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(logs=logs)
def test_a_scan_resumed_at_its_positions_has_each_message_once_wherever_it_stopped(
    client: Client, logs: tuple[int, list[Write]]
) -> None:
    name = fill(client, *logs)
    with client.scan(name) as scan:
        batches = list(scan)
    whole = [(batch.vchannel, message.tick, message.payload) for batch in batches for message in batch]

    for stop in range(1, len(batches) + 1):
        with client.scan(name) as first:
            before = taken(first, stop)
            positions = first.positions
        with client.channel(name).scan(start=positions) as second:
            assert sorted(before + taken(second)) == sorted(whole)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(logs=logs)
def test_a_scan_that_is_resumed_again_and_again_has_each_message_once(
    client: Client, logs: tuple[int, list[Write]]
) -> None:
    name = fill(client, *logs)
    with client.scan(name) as scan:
        whole = taken(scan)

    found: list[tuple[str, int, bytes]] = []
    positions: Positions | At = At.earliest()
    while True:
        with client.scan(name, start=positions) as scan:
            step = taken(scan, 1)
            positions = scan.positions
        found += step
        if not step:
            break

    assert sorted(found) == sorted(whole)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(logs=logs)
def test_a_watermark_is_one_tick_behind_which_a_scan_of_several_vchannels_misses_nothing(
    client: Client, logs: tuple[int, list[Write]]
) -> None:
    vchannels, log = logs
    name = fill(client, vchannels, log)
    with client.scan(name) as first:
        before = taken(first)
        end = At.tick(first.watermark + 1)
    client.broadcast([f"{name}/{lane}" for lane in range(vchannels)], b"later")

    with client.scan(name, start=end) as second:
        after = taken(second)
    with client.scan(name) as scan:
        assert sorted(before + after) == sorted(taken(scan))
    assert [payload for _, _, payload in after] == [b"later"] * vchannels
