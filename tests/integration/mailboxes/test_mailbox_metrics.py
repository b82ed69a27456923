"""The metrics of mailboxes tell what happens to messages, and what is there.

Method: a real server, calls through the generated stubs, and the text of `/metrics` as Prometheus reads it.
"""

import asyncio
from pathlib import Path
from typing import Any

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.app import Server
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.mailbox_calls import acknowledge, counts, create, fetch, mailbox_stub, samples
from tidelog_testing.parts.waiting import eventually


async def events(server: Server) -> dict[str, float]:
    found = await samples(server)
    return {event: value for (name, event), value in found.items() if name == "mailbox_events_total" and value}


async def test_every_event_of_a_message_is_counted_once(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, mailbox_stub(server) as stub:
        assert await events(server) == {}
        await create(stub, "dead")
        await create(stub, "jobs", max_deliveries=2, dead_letter="dead")
        keyed = [pb.OutgoingMessage(body=b"x", dedup_key="once")]
        await stub.Send(pb.SendRequest(mailbox="jobs", messages=keyed))
        assert (await stub.Send(pb.SendRequest(mailbox="jobs", messages=keyed))).duplicates == [0]
        await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"y"]))
        assert await events(server) == {"sent": 2, "duplicate": 1}

        first, second = await fetch(stub, "jobs", lease_ms=60_000)
        await stub.Extend(pb.ExtendRequest(mailbox="jobs", lock_ids=[first.lock_id], lease_ms=60_000))
        await acknowledge(stub, "jobs", confirmed=[first.lock_id], rejected=[second.lock_id])
        assert await events(server) == {
            "sent": 2, "duplicate": 1, "delivered": 2, "extended": 1, "confirmed": 1, "rejected": 1,
        }  # fmt: skip

        [second] = await fetch(stub, "jobs", lease_ms=300)
        dead = await eventually(lambda: events(server), lambda found: "dead" in found)
        assert (dead["delivered"], dead["lease_expired"], dead["dead"]) == (3, 1, 1)
        [_] = await fetch(stub, "dead", wait_ms=10_000, lease_ms=60_000)
        await stub.Reenqueue(pb.ReenqueueRequest(mailbox="dead", ids=[each.id for each in await peeked(stub, "dead")]))
        async for _ in stub.Redrive(pb.RedriveRequest(mailbox="dead")):
            pass
        await stub.PurgeMailbox(pb.PurgeMailboxRequest(name="jobs"))
        found = await events(server)
        # The move to the mailbox for dead letters and back are not counted as sent.
        assert (found["sent"], found["redriven"], found["purged"]) == (2, 1, 1)


async def peeked(stub: Any, mailbox: str) -> list[pb.MessageHeader]:
    return [each.header for each in (await stub.Peek(pb.PeekRequest(mailbox=mailbox))).messages]


async def test_messages_are_told_by_state_and_by_mailbox_only_if_asked(tmp_path: Path) -> None:
    async with running_server(tmp_path, metrics__per_mailbox="true") as server, mailbox_stub(server) as stub:
        await create(stub, "a")
        await create(stub, "b", max_deliveries=1)
        await stub.Send(pb.SendRequest(mailbox="a", bodies=[b"12", b"345"]))
        await stub.Send(pb.SendRequest(mailbox="a", messages=[pb.OutgoingMessage(body=b"late", delay_ms=60_000)]))
        await stub.Send(pb.SendRequest(mailbox="b", bodies=[b"6", b"7"]))
        await fetch(stub, "a", max_messages=1, lease_ms=60_000)
        [poison] = await fetch(stub, "b", max_messages=1)
        await acknowledge(stub, "b", rejected=[poison.lock_id])
        assert await counts(stub, "a") == (1, 1, 1, 0)
        assert await counts(stub, "b") == (1, 0, 0, 1)

        found = await samples(server)
        held = {state: value for (name, state), value in found.items() if name == "mailbox_held_messages"}
        assert held == {"available": 2, "delayed": 1, "leased": 1, "dead": 1}
        assert found["mailbox_held_bytes", ""] == 2 + 3 + 4 + 1 + 1
        assert found["mailboxes_open", ""] == 2
        assert found["mailboxes_unloadable", ""] == 0
        assert found["mailbox_recent_bytes", ""] > 0
        assert found["mailboxes_oldest_available_seconds", ""] > 0
        assert found["mailbox_oldest_available_seconds", "a"] > 0
        assert (found["mailbox_available_messages", "a"], found["mailbox_leased_messages", "a"]) == (1, 1)
        assert (found["mailbox_available_messages", "b"], found["mailbox_dead_messages", "b"]) == (1, 1)

        await stub.DeleteMailbox(pb.DeleteMailboxRequest(name="a"))
        found = await samples(server)
        assert ("mailbox_available_messages", "a") not in found
        assert found["mailbox_held_messages", "leased"] == 0
        assert found["mailbox_held_bytes", ""] == 2

    # What a restart loads is counted as before it.
    async with running_server(tmp_path) as server:
        found = await eventually(lambda: samples(server), lambda found: found["mailboxes_open", ""] == 1)
        assert (found["mailbox_held_messages", "available"], found["mailbox_held_messages", "dead"]) == (1, 1)
        assert [name for name, _ in found if name == "mailbox_available_messages"] == []


async def test_waiting_fetches_are_counted_until_they_end_or_their_clients_leave(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, mailbox_stub(server) as stub:
        await create(stub, "a")
        calls = [asyncio.ensure_future(stub.Fetch(pb.FetchRequest(mailbox="a", wait_ms=60_000))) for _ in range(3)]

        async def waiting() -> float:
            return (await samples(server))["mailbox_waiting_fetches", ""]

        await eventually(waiting, lambda found: found == 3)
        calls.pop().cancel()
        await eventually(waiting, lambda found: found == 2)
        await stub.Send(pb.SendRequest(mailbox="a", bodies=[b"x", b"y"]))
        assert [len((await call).deliveries) for call in calls] == [1, 1]
        assert await waiting() == 0


async def test_housekeeping_is_counted(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, mailbox_stub(server) as stub:
        await create(stub, "a")
        await stub.Send(pb.SendRequest(mailbox="a", bodies=[b"x"]))
        mailboxes = server._node.opened_mailboxes
        assert mailboxes is not None
        await mailboxes.housekeeper.keep(await mailboxes.open("a"))
        found = await samples(server)
        assert found["mailbox_snapshots_total", ""] == 1
        assert found["mailbox_trims_total", ""] == 0
