"""A program of the client of commit 23ee37d: ``python -I -S old_client.py CLIENT SITE_PACKAGES... -- ENDPOINT``.

It writes and reads in every way, and prints what it got as JSON. Only that client is on its path, beside the installed
packages that it needs: ``-I -S`` keep out everything else, and with it the current client.
"""

import json
import sys

CLIENT, *SITE_PACKAGES = sys.argv[1 : sys.argv.index("--")]
ENDPOINT = sys.argv[-1]
sys.path[:0] = [CLIENT]
sys.path += SITE_PACKAGES

import tidelog  # After the path is set.
from tidelog import At, Client, Message, ProducerSequence, ResourceKey

assert tidelog.__file__ is not None
assert tidelog.__file__.startswith(CLIENT), tidelog.__file__


def main() -> None:
    """Write to ``old``, and read ``old`` and ``current``."""
    with Client(ENDPOINT, client_id="an-old-client") as client:
        client.create_channel("old", vchannels=2)
        found = append(client) | transact(client) | broadcast(client) | consume(client)
        with client.scan(["current/0", "current/1"]) as scan:
            found["current"] = [
                [
                    each.vchannel, each.tick, each.payload.decode(), (each.key or b"").decode(), each.type,
                    dict(each.properties), each.event_time_ms, each.txn_id, each.broadcast_id,
                ]
                for batch in scan
                for each in batch
            ]  # fmt: skip
        plan = client.plan_scan(["current/0", "current/1"])
        found["planned"] = sum(split.estimated_messages for split in plan.splits)
    print(json.dumps(found))


def append(client: Client) -> dict[str, object]:
    """Append alone, with conditions, numbered, and through a producer."""
    first = client.append("old/0", [b"a", Message(b"b", key=b"k", type=7, properties={"p": "1"})])
    client.append("old/0", b"c", expected_last_tick=first.last_tick)
    refused = ""
    try:
        client.append("old/0", b"never", expected_last_tick=first.last_tick)
    except tidelog.LastTickMismatchError as error:
        refused = f"{type(error).__name__} {error.effect} {sorted(error.values)}"
    opened = client.open_producer("old/1", "old-producer")
    numbered = ProducerSequence("old-producer", 1, opened.epoch)
    again = [client.append("old/1", b"numbered", producer=numbered) for _ in range(2)]
    with client.producer("old/0") as producer:
        producer.send_many([b"sent %d" % number for number in range(100)])
    with client.scan(["old/0", "old/1"], until=At.tick(client.allocate_ticks()[0])) as scan:
        payloads = [payload.decode() for batch in scan for payload in batch.payloads]
    return {
        "refused": refused, "duplicates": [each.duplicate for each in again],
        "is_same": again[0].first_tick == again[1].first_tick, "scanned": sorted(payloads),
    }  # fmt: skip


def transact(client: Client) -> dict[str, object]:
    """Commit a transaction in one request, a staged one, and prepared ones twice."""
    with client.txn() as txn:
        txn.append("old/0", b"txn")
        txn.append("old/1", b"txn")
    with client.scan("old/1") as scan:
        columns = next(iter(scan)).columns
    with client.txn() as staged:
        staged.append_columns("old/0", columns)
        staged.append("old/1", b"staged")
    commits = []
    for _ in range(2):
        prepared = []
        for lane in ("old/0", "old/1"):
            part = client.txn()
            part.append(lane, b"prepared")
            prepared.append(part.prepare("old-app", app_version=1))
        commits.append(client.commit_prepared(prepared, "old-app", 1))
    return {
        "staged_state": client.describe_txn(staged.result.txn_id).state,
        "commits": [[each.messages, each.duplicate] for each in commits],
        "is_one_commit": commits[0].first_tick == commits[1].first_tick,
    }


def broadcast(client: Client) -> dict[str, object]:
    """Broadcast under a key, acknowledge from the batch, and list."""
    sent = client.broadcast(["old/0", "old/1"], b"broadcast", resource_keys=[ResourceKey("table", "t")])
    with client.scan(["old/0", "old/1"], start=sent.tick) as scan:
        for batch in scan:
            client.ack_batch(batch)
    client.wait_acked(sent.broadcast_id)
    return {
        "broadcast_state": client.describe_broadcast(sent.broadcast_id).summary.state.value,
        "open_broadcasts": [each.broadcast_id for each in client.list_broadcasts()],
    }


def consume(client: Client) -> dict[str, object]:
    """Consume one vchannel by calls, and the rest as a member; commit both."""
    client.create_group("old-group", ["old"])
    called = client.consume("old-group", "old/0", 3, commit=True)
    delivered = len(called)
    with client.consumer("old-group", "old") as consumer:
        while True:
            group = client.describe_group("old-group")
            if group.lag_messages == 0:
                break
            batches = consumer.poll(1.0)
            delivered += sum(map(len, batches))
            consumer.commit()
    return {"called": len(called), "delivered": delivered}


main()
