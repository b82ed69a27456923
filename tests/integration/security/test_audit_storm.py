"""Refusals cost their callers nothing, so the audit log records some of each and counts the rest; old events can go.

Method: a server with TLS and authentication in this process, streams of batches that a token may not append, and the
audit log read back.
"""

import asyncio
import dataclasses
import json
from collections import Counter
from typing import Any

import grpc
import grpc.aio
import pytest

import tidelog
from tidelog import PermissionDeniedError, Tick
from tidelog_cli.commands.audit import check_chain
from tidelog_server.security.audit_limits import MAX_REFUSAL_EVENTS_PER_CALLER_AT_ONCE
from tidelog_testing.parts.fixtures import secured_with
from tidelog_testing.parts.grpc_calls import a_request
from tidelog_testing.servers.secured import Secured

STORM = 2_000
# Without a quota, so that the storm is as fast as the server.
secured = secured_with(quota__requests_per_s=0)


async def lines_of(secured: Secured) -> list[bytes]:
    async with secured.client() as client:
        return [bytes(payload) async for batch in client.scan("_audit") for payload in batch.payloads]


async def refusals_of(secured: Secured) -> tuple[Counter[str], Counter[str]]:
    """Return how many denials of each caller are recorded, and how many are counted."""
    recorded, counted = Counter[str](), Counter[str]()
    for event in map(json.loads, await lines_of(secured)):
        if event["event"] == "denied":
            recorded[event["principal"]] += 1
        if event["event"] == "lost":
            counted.update(event["callers"])
    return recorded, counted


async def storm(secured: Secured, token: str, batches: int) -> None:
    """Append batches to channels that the token may not append to, each to another one."""
    async with secured.channel() as channel:
        appending: Any = channel.stream_stream("/tidelog.v1.WalService/AppendStream")
        stream = appending(metadata=(("authorization", f"Bearer {token}"),))

        async def send() -> None:
            for number in range(batches):
                await stream.write(a_request(f"c{number}", b"x", request_id=number + 1).SerializeToString())

        sending = asyncio.create_task(send())
        for _ in range(batches):
            assert await stream.read() is not grpc.aio.EOF
        await sending
        stream.cancel()


async def until_told(secured: Secured, denials: int) -> tuple[Counter[str], Counter[str]]:
    async with asyncio.timeout(30):
        while True:
            recorded, counted = await refusals_of(secured)
            if recorded.total() + counted.total() >= denials:
                return recorded, counted
            await asyncio.sleep(0.2)


async def test_a_storm_of_denials_is_recorded_in_part_and_counted_as_a_whole(secured: Secured) -> None:
    noisy, quiet = await secured.token("append:zzz"), await secured.token("append:zzz")
    await storm(secured, noisy, STORM)
    await storm(secured, quiet, 3)

    recorded, counted = await until_told(secured, STORM + 3)

    assert recorded.total() + counted.total() == STORM + 3
    [loud] = counted
    assert counted.total() == STORM - recorded[loud]
    # Some more for the time that the storm takes.
    assert recorded[loud] <= MAX_REFUSAL_EVENTS_PER_CALLER_AT_ONCE + 10
    # One principal's storm takes nothing from the records of another.
    assert sorted(recorded.values()) == [3, recorded[loud]]
    lines = await lines_of(secured)
    assert check_chain(lines) == len(lines)


async def test_no_denial_is_recorded_while_the_disk_is_full_and_all_are_counted_later(secured: Secured) -> None:
    token = await secured.token("append:zzz")
    admission = secured.server._log.admission
    limits = admission.limits
    # As if it were: what the operator wants to keep free is more than there is.
    admission.limits = dataclasses.replace(limits, min_free_disk_bytes=1 << 60)
    before = len(await lines_of(secured))
    try:
        await storm(secured, token, 50)
        async with secured.client() as admin:
            # An administrative call is recorded all the same.
            await admin.create_token("made meanwhile", ["read:*"])
        assert len(await lines_of(secured)) == before + 1
    finally:
        admission.limits = limits
    recorded, counted = await until_told(secured, 50)
    assert (recorded.total(), counted.total()) == (0, 50)


async def test_administrators_trim_old_events_and_that_is_an_event(secured: Secured) -> None:
    async with secured.client() as admin:
        for number in range(5):
            await admin.create_channel(f"c{number}")
        end = await admin.latest_mvcc_tick("_audit")
        async with secured.client(await secured.token("channel.truncate:*", "admin.read", "read:*")) as other:
            with pytest.raises(PermissionDeniedError):
                await other.trim("_audit", end)
        # Not as a whole: then no event would record it.
        with pytest.raises(tidelog.InvalidRequestError, match="cannot be trimmed as a whole"):
            await admin.trim("_audit", everything=True)
        count = len(await lines_of(secured))

        await admin.trim("_audit", end)

        lines = await lines_of(secured)
        assert len(lines) < count
        assert check_chain(lines) == len(lines)
        last = json.loads(lines[-1])
        assert (last["method"], last["request"]["vchannel"]) == ("tidelog.v1.WalService/Trim", "_audit")
        # Beyond all events: the newest one, which records the trim, stays.
        await admin.trim("_audit", Tick(await admin.latest_mvcc_tick("_audit") + (1 << 30)))
        [line] = await lines_of(secured)
        assert json.loads(line)["method"].endswith("/Trim")
        await admin.create_channel("later")
    lines = await lines_of(secured)
    assert check_chain(lines) == len(lines) == 2
