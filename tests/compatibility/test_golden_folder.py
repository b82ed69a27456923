"""Goal: every later server opens the data folder of an earlier one, with all of its content, and continues it.

Method: the golden folder, which a server of the commit of each set left when it was killed: one part flushed, one part
in the WAL. Its content is compared with what that server and its client read, in expected.json.
"""

from pathlib import Path

from compatibility.content import Json, check, dump, dump_audit, dump_tokens, messages, prepare_parts, probe
from compatibility.golden import LATEST, GoldenSet, each_set
from compatibility.mailbox_content import dump_mailboxes, probe_mailboxes
from tidelog import At, Client, Message
from tidelog_testing.servers.processes import ServerProcess


def everything(client: Client, golden: GoldenSet) -> Json:
    facts = golden.expected["facts"]
    found = dump(client, facts["txn_ids"]) | dump_mailboxes(client, facts)
    return found | {"tokens": dump_tokens(client), "audit": dump_audit(client)}


@each_set
async def test_the_folder_has_exactly_the_content_that_was_written(golden: GoldenSet, tmp_path: Path) -> None:
    found = await golden.on_server(
        golden.unpack("data", tmp_path), lambda client: everything(client, golden), golden.expected["facts"]["token"]
    )

    audit = golden.expected["audit"]
    # The server has recorded this start and the calls of this test behind it.
    assert found.pop("audit")[: len(audit)] == audit
    check(found, golden.expected["folder"])
    # The staged and the prepared transaction that were open at the kill have ended, and left nothing.
    assert found["open_transactions"] == []


@each_set
async def test_repeated_calls_get_the_answers_of_the_old_server_and_append_nothing(
    golden: GoldenSet, tmp_path: Path
) -> None:
    def repeat(client: Client) -> tuple[Json, Json, Json]:
        before = dump(client)["messages"]
        answers = probe(client, golden.expected["facts"])
        return answers, before, dump(client)["messages"]

    answers, before, after = await golden.on_server(
        golden.unpack("data", tmp_path), repeat, golden.expected["facts"]["token"]
    )

    assert answers == golden.expected["probe"]
    assert after == before == golden.expected["folder"]["messages"]


@each_set
def test_the_folder_takes_every_kind_of_write_today_and_survives_a_kill(golden: GoldenSet, tmp_path: Path) -> None:
    folder, was = golden.unpack("data", tmp_path), golden.expected["folder"]
    last_tick = max(row[0] for rows in was["messages"].values() for row in rows)
    with ServerProcess(folder) as server, Client(server.grpc) as client:
        names = ("channels", "messages", "groups", "open_broadcasts", "open_transactions")
        check(dump(client), {name: was[name] for name in names})
        written = write_all(client, golden)
        after = dump(client)
        server.kill()
    with ServerProcess(folder) as server, Client(server.grpc) as client:
        assert dump(client) == after

    assert after["messages"].keys() == was["messages"].keys() | {"made-today/0"}
    for lane, rows in after["messages"].items():
        old = was["messages"].get(lane, [])
        if lane == "orders/1":
            old = old[10:]
        assert rows[: len(old)] == old, lane
        assert [row[1] for row in rows[len(old) :]] == written.get(lane, []), lane
        assert all(row[0] > last_tick for row in rows[len(old) :])
    moved = after["groups"]["billing"]["positions"]["orders/0"]["next_tick"]
    assert moved > was["groups"]["billing"]["positions"]["orders/0"]["next_tick"]


async def test_mailboxes_deliver_what_was_sent_and_recognize_what_was_sent_or_acknowledged_before(
    tmp_path: Path,
) -> None:
    facts = LATEST.expected["facts"]

    answers = await LATEST.on_server(
        LATEST.unpack("data", tmp_path), lambda client: probe_mailboxes(client, facts), facts["token"]
    )

    assert answers == LATEST.expected["mailbox_probe"]


def test_mailboxes_and_blobs_take_writes_today_and_survive_a_kill(tmp_path: Path) -> None:
    folder, facts = LATEST.unpack("data", tmp_path), LATEST.expected["facts"]
    was = LATEST.expected["folder"]["blobs"]
    counted = [key for key, blob in was.items() if blob["references"]]
    with ServerProcess(folder) as server, Client(server.grpc) as client:
        names = [each.name for each in client.mailboxes.list()]
        sent = {name: client.mailbox(name).send(b"today " * 20_000, dedup_key="today").id for name in names}
        for key in counted:
            client.blobs.update_ref_count(bytes.fromhex(key), 1)
        server.kill()
    with ServerProcess(folder) as server, Client(server.grpc) as client:
        for name, message_id in sent.items():
            (found,) = client.mailbox(name).peek(message_id=message_id)
            assert found.body == b"today " * 20_000
            assert client.mailbox(name).send(b"never", dedup_key="today") == (message_id, True)
        blobs = dump_mailboxes(client, {**facts, "blobs": counted})["blobs"]
        assert blobs == {key: {**was[key], "references": was[key]["references"] + 1} for key in counted}


def test_a_broadcast_that_was_accepted_before_a_kill_is_appended_by_the_next_start(tmp_path: Path) -> None:
    with ServerProcess(LATEST.unpack("pending", tmp_path)) as server, Client(server.grpc) as client:
        (found,) = client.list_broadcasts()
        rows = [row for lane in ("pending/0", "pending/1") for row in messages(client, lane)]

    assert [(row[1], row[2], row[7]) for row in rows] == [("pending", "k", found.broadcast_id)] * 2


def write_all(client: Client, golden: GoldenSet) -> dict[str, list[str]]:
    """Write in every way; return the new payloads of each vchannel in order."""
    client.create_channel("made-today")
    client.append("made-today/0", b"first")
    client.append("orders/0", Message(b"appended", key=b"k", properties={"p": "1"}))
    position = client.open_producer("payments/0", "till-1")
    numbered = position.sequence(position.last_sequence + 1)
    assert [client.append("payments/0", b"numbered", producer=numbered).duplicate for _ in range(2)] == [False, True]
    with client.scan("made-today/0") as scan:
        columns = next(iter(scan)).columns
    with client.txn() as txn:
        txn.append("orders/0", b"in one request")
        txn.append("again/0", b"in one request")
    with client.txn() as txn:
        txn.append_columns("events/2", columns)
        txn.append("again/1", b"staged")
    again = client.commit_prepared(prepare_parts(client, "etl", 5), "etl", 5)
    ticks = [row[0] for row in golden.expected["folder"]["messages"]["again/0"] if row[1] in {"etl 0", "etl 1"}]
    assert (again.duplicate, again.messages, len(ticks)) == (True, 4, 2)
    assert all(again.first_tick <= tick <= again.last_tick for tick in ticks)
    prepared = client.txn()
    prepared.append("again/1", b"prepared")
    ready = prepared.prepare("etl", app_version=6)
    assert ready is not None
    assert not client.commit_prepared([ready], "etl", 6).duplicate
    sent = client.broadcast(["events/0", "events/1"], b"broadcast")
    client.ack(sent.broadcast_id, ["events/0", "events/1"])
    assert len(client.consume("billing", "orders/0", 1, commit=True)) == 1
    client.trim("orders/1", At.tick(golden.expected["folder"]["messages"]["orders/1"][10][0]))
    return {
        "made-today/0": ["first"], "orders/0": ["appended", "in one request"], "payments/0": ["numbered"],
        "again/0": ["in one request"], "events/2": ["first"], "again/1": ["staged", "prepared"],
        "events/0": ["broadcast"], "events/1": ["broadcast"],
    }  # fmt: skip
