"""Operations across channels: a transaction that a crash interrupts, and a broadcast that two consumers acknowledge."""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final

from rich.console import Console

from examples.flights.flights import Flight
from tidelog import Client, ResourceKey, Scan, Tick, Transaction, TransactionExpiredError
from tidelog_cli.exit_codes import CommandError

BOOKINGS: Final = "bookings"
SEATS: Final = "seats"
_VCHANNELS: Final = 2
# Enough for a transaction of several megabytes, which the server stages on disk as it arrives.
_FLIGHTS: Final = 10_000
_STEP: Final = 500
_ROWS: Final = 30
_SCHEMA: Final = ResourceKey("schema", "bookings")
# Maximum polls until the server must have staged a message; each poll is a round trip.
_LOOKS: Final = 10_000
_ACKED_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class HalfTransaction:
    """A transaction that its client can no longer commit.

    Attributes:
        txn_id: Id of the transaction.
        staged: Number of its messages on the server's disk when the server died.
    """

    txn_id: int
    staged: int


@dataclass(frozen=True, slots=True)
class Together:
    """Results of this part.

    Attributes:
        staged: Messages of the interrupted transaction that were stored when the server died; none became visible.
        committed: Messages of the repeated transaction on both channels.
        commit_s: Seconds that its commit took.
        schema_tick: Tick of the broadcast, on every vchannel.
        acked_s: Seconds from the broadcast until both consumers had acknowledged it.
    """

    staged: int
    committed: int
    commit_s: float
    schema_tick: Tick
    acked_s: float

    def lines(self) -> list[str]:
        """Return one line per part."""
        return [
            f"cut       {self.staged:,} messages of a transaction on two channels were stored when the server died: "
            "none became visible",
            f"whole     {self.committed:,} messages on two channels, committed atomically in "
            f"{self.commit_s * 1_000:.0f} ms",
            f"schema    changed at tick {int(self.schema_tick)} on {2 * _VCHANNELS} vchannels, acknowledged by 2 "
            f"consumers after {self.acked_s * 1_000:.0f} ms",
        ]


def stage_half(endpoint: str, flights: Sequence[Flight], progress: Console) -> HalfTransaction:
    """Begin a transaction, append half of it, and leave it uncommitted, like a client whose server then dies."""
    with Client(endpoint) as client:
        for name in (BOOKINGS, SEATS):
            client.create_channel(name, vchannels=_VCHANNELS)
        txn = client.txn()
        _fill(txn, flights, _FLIGHTS // 2)
        for _ in range(_LOOKS):
            [staged] = client.list_txns()
            if staged.messages:
                break
        else:
            raise CommandError("the server has staged no message of the transaction")
        progress.print(
            f"a transaction on {BOOKINGS} and {SEATS} is half done: {staged.messages:,} of its messages are on disk"
        )
        return HalfTransaction(staged.txn_id, staged.messages)


def go_on(endpoint: str, half: HalfTransaction, flights: Sequence[Flight], progress: Console) -> Together:
    """After the restart: check that the half is not visible, commit the whole, and change the schema of all channels.

    Raises:
        CommandError: A message of the half is visible, or a message of the whole is missing.
    """
    with Client(endpoint) as client:
        _expect_nothing(client, half, progress)
        begin = time.perf_counter()
        with client.txn() as txn:
            messages = _fill(txn, flights, _FLIGHTS)
            begin = time.perf_counter()
        commit_s = time.perf_counter() - begin
        if (found := _count(client)) != messages:
            raise CommandError(f"{messages} messages were committed, but {found} are visible")
        tick, acked_s = _change_schema(client, progress)
    return Together(half.staged, messages, commit_s, tick, acked_s)


def _expect_nothing(client: Client, half: HalfTransaction, progress: Console) -> None:
    if found := _count(client):
        raise CommandError(f"{found} messages of an uncommitted transaction are visible")
    try:
        client.describe_txn(half.txn_id)
    except TransactionExpiredError as error:
        progress.print(f"after the crash: {error}", highlight=False, soft_wrap=True)
    else:
        raise CommandError(f"transaction {half.txn_id} is still open after the restart of the server")


def _count(client: Client) -> int:
    described = client.describe_channels([BOOKINGS, SEATS])
    return sum(vchannel.messages for channel in described for vchannel in channel.vchannels)


def _fill(txn: Transaction, flights: Sequence[Flight], count: int) -> int:
    """Append a booking and the seats for ``count`` flights, repeating ``flights`` if too few; return the messages."""
    chosen = list(islice(cycle(flights), count))
    for start in range(0, count, _STEP):
        step = chosen[start : start + _STEP]
        for lane in range(_VCHANNELS):
            several = [flight for flight in step if flight.line % _VCHANNELS == lane]
            if several:
                txn.append(f"{BOOKINGS}/{lane}", [flight.payload for flight in several])
                txn.append(f"{SEATS}/{lane}", [_seats(flight) for flight in several])
    return 2 * count


def _seats(flight: Flight) -> bytes:
    free = [f"{row}{letter}" for row in range(1, _ROWS + 1) for letter in "ABCDEF" if (row * 7 + flight.line) % 3]
    return json.dumps({"line": flight.line, "carrier": flight.carrier, "free": free}).encode()


def _change_schema(client: Client, progress: Console) -> tuple[Tick, float]:
    """Broadcast a new schema to both consumers, and wait for their acknowledgements; return its tick and seconds."""
    vchannels = {name: [f"{name}/{lane}" for lane in range(_VCHANNELS)] for name in (BOOKINGS, SEATS)}
    with (
        ThreadPoolExecutor(len(vchannels)) as threads,
        client.tail(vchannels[BOOKINGS]) as bookings,
        client.tail(vchannels[SEATS]) as seats,
    ):
        consumers = [
            threads.submit(list, _acknowledge(client, name, scan, progress))
            for name, scan in (("billing", bookings), ("boarding", seats))
        ]
        begin = time.perf_counter()
        change = json.dumps({"schema": 2, "added": "currency"}).encode()
        everywhere = [vchannel for names in vchannels.values() for vchannel in names]
        sent = client.broadcast(everywhere, change, resource_keys=[_SCHEMA])
        client.wait_acked(_SCHEMA, timeout_s=_ACKED_TIMEOUT_S)
        acked_s = time.perf_counter() - begin
        ticks = {tick for consumer in consumers for tick in consumer.result(_ACKED_TIMEOUT_S)}
    if ticks != {sent.tick}:
        raise CommandError(f"the schema was changed at tick {sent.tick}, but consumers saw it at {sorted(ticks)}")
    return sent.tick, acked_s


def _acknowledge(client: Client, name: str, arrivals: Scan, progress: Console) -> Iterator[Tick]:
    """Consume until the broadcast has arrived on each vchannel; yield the ticks at which it did."""
    for _ in range(_VCHANNELS):
        batch = next(batch for batch in arrivals if batch.broadcast_id is not None)
        change = batch.payloads[0].decode()
        progress.print(f"  {name}: {batch.vchannel} has {change} from tick {int(batch.first_tick)}", style="dim")
        client.ack_batch(batch)
        yield batch.first_tick
