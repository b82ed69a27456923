"""A transaction is in the log as a whole or not at all, and once, after any crash during its commit.

Method: tasks move amounts between accounts, each move one transaction on the vchannels of two channels, on servers that
are killed at random moments or at failpoints of the write path, while a reader follows. Every acknowledged move must be
there once, every other one as a whole or not at all, and the reader never sees part of one. Some moves are so large
that they are staged; a server that dies aborts them, and then nothing of them may be there. Some are rolled back.

Promises of docs/reference/guarantees.md: G21, G22, G24.
"""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, At, TransactionResult
from tidelog.txn import transaction as _transaction
from tidelog_server.runtime.failpoints import Failpoint
from tidelog_testing.loads.outage import InterruptedServer
from tidelog_testing.parts.soaks import Recorder

pytestmark = pytest.mark.crash

ACCOUNTS = ("debits/0", "debits/1", "credits/0", "credits/1")
_MOVERS = 6
_LARGE_BYTES = 2_000
_LARGE_SHARE = 0.3
_ROLLED_BACK_SHARE = 0.2
_POINTS = (
    Failpoint.BEFORE_WRITE,
    Failpoint.AFTER_WRITE_BEFORE_SYNC,
    Failpoint.AFTER_SYNC_BEFORE_ACK,
    Failpoint.MID_DISCARD,
)


@dataclass
class Run:
    """Events of all rounds.

    Attributes:
        results: Position of each acknowledged move, by its name.
        lost: Moves of which nothing may be there: aborted by the server, or rolled back.
        seen: Messages of each transaction that the reader received.
        watermark: Tick up to which the reader has seen everything.
        is_over: Set when no more moves are to begin.
        acknowledged: Set at each acknowledgement.
    """

    chance: random.Random
    results: dict[bytes, TransactionResult] = field(default_factory=dict)
    lost: set[bytes] = field(default_factory=set)
    seen: defaultdict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    watermark: int = 0
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)


async def move(run: Run, client: AsyncClient, name: str) -> None:
    """Commit one move after the other, across all restarts of the server."""
    number = 0
    while not run.is_over.is_set():
        number += 1
        # Few sets of accounts, so that transactions share requests.
        accounts = run.chance.choice([ACCOUNTS, ACCOUNTS[:2], ACCOUNTS[1:3]])
        counts = {account: run.chance.randint(1, 3) for account in accounts}
        filler = b"." * (_LARGE_BYTES if run.chance.random() < _LARGE_SHARE else 0)
        payload = b"%s:%d:%s:%d" % (name.encode(), number, filler, sum(counts.values()))
        txn = client.txn(timeout_s=60)
        try:
            for account, count in counts.items():
                await txn.append(account, [payload] * count)
            if filler and run.chance.random() < _ROLLED_BACK_SHARE:
                run.lost.add(payload)
                await txn.rollback()
                continue
            result = await txn.commit()
        except tidelog.TransactionExpiredError:
            run.lost.add(payload)
            continue
        except tidelog.UnavailableError:
            # Not begun, or not staged, because the server was away too long.
            run.lost.add(payload)
            await txn.rollback()
            continue
        assert result is not None
        run.results[payload] = result
        run.acknowledged.set()


async def follow(run: Run, client: AsyncClient) -> None:
    """Read everything as it arrives; at each watermark, check that everything below it is complete."""
    async with client.scan(ACCOUNTS, until=At.follow()) as scan:
        async for batch in scan:
            assert batch.txn_id is not None
            run.seen[batch.txn_id] += batch.payloads
            run.watermark = scan.watermark


async def stored(client: AsyncClient) -> dict[int, list[tuple[str, int, bytes]]]:
    """Return vchannel, tick and payload of each message, by transaction."""
    found: dict[int, list[tuple[str, int, bytes]]] = defaultdict(list)
    async for batch in client.scan(ACCOUNTS):
        assert batch.txn_id is not None
        found[batch.txn_id] += [(batch.vchannel, *row) for row in zip(batch.ticks, batch.payloads, strict=True)]
    return found


def judge(run: Run, found: dict[int, list[tuple[str, int, bytes]]]) -> None:
    """Compare the log with the acknowledgements and with what the reader saw."""
    by_payload: dict[bytes, int] = {}
    for txn_id, rows in found.items():
        [payload] = {payload for _, _, payload in rows}
        assert len(rows) == int(payload.rpartition(b":")[2]), "a part is missing"
        for account in ACCOUNTS:
            ticks = [tick for vchannel, tick, _ in rows if vchannel == account]
            assert ticks == list(range(ticks[0], ticks[0] + len(ticks))) if ticks else True
        assert payload not in by_payload, "a move is there twice"
        by_payload[payload] = txn_id
    assert not run.lost & by_payload.keys()
    for payload, result in run.results.items():
        assert by_payload[payload] == result.txn_id
        rows = found[result.txn_id]
        assert all(result.first_tick <= tick <= result.last_tick for _, tick, _ in rows)
        for account, part in result.results.items():
            ticks = [tick for vchannel, tick, _ in rows if vchannel == account]
            assert ticks == list(range(part.first_tick, part.last_tick + 1))
    # The last transaction seen may have been in flight when the reader was stopped.
    for txn_id in sorted(run.seen)[:-1]:
        assert run.seen[txn_id] == [payload for _, _, payload in found[txn_id]]


async def test_no_transaction_is_there_in_part_or_twice_whatever_dies(
    tmp_path: Path, record_property: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", _LARGE_BYTES)
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    run = Run(random.Random(seed))
    server = InterruptedServer(tmp_path / "log")
    retry = tidelog.Retry(base_s=0.01, cap_s=0.1)
    async with AsyncClient(server.grpc, connect_timeout_s=30, retry=retry) as client:
        for channel in ("debits", "credits"):
            await client.create_channel(channel, vchannels=2)
        reader = asyncio.create_task(follow(run, client))
        movers = [asyncio.create_task(move(run, client, f"m{number}")) for number in range(_MOVERS)]
        for point in (None, *_POINTS):
            for _ in range(run.chance.randint(1, 30)):
                run.acknowledged.clear()
                await run.acknowledged.wait()
            await server.start_again(f"{point}:{run.chance.randint(1, 30)}" if point else "")
        run.is_over.set()
        await asyncio.gather(*movers)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        judge(run, await stored(client))
    await asyncio.to_thread(server.kill)
    met_again = sum(result.duplicate for result in run.results.values())
    text = f"{len(run.results)} transactions, {met_again} met again, {len(run.lost)} lost, {len(run.seen)} seen"
    record_property("measured", text)
    assert run.lost, text
