"""Prepared transactions: prepared by several clients, committed once by one of them.

Method: servers in this process; asynchronous and synchronous clients, in plaintext and with authentication.

Promises of docs/reference/guarantees.md: G47.
"""

import asyncio
import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, Client, Message, PreparedTransaction
from tidelog.append.options import AppendConditions
from tidelog.txn import transaction as _transaction
from tidelog.wire.columns import encode_payloads
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.secured import secured_server

APP = "etl"
client = client_with(orders=2, payments=1)


async def prepared(
    client: AsyncClient, vchannel: str, messages: Sequence[bytes], app_version: int | None = None
) -> PreparedTransaction:
    txn = client.txn()
    await txn.append(vchannel, messages)
    handle = await txn.prepare(APP, app_version=app_version, keepalive_s=60.0)
    assert handle is not None
    return handle


async def test_what_several_clients_prepared_one_of_all_commits(client: AsyncClient) -> None:
    async with AsyncClient(client.endpoint) as other:
        first = await prepared(client, "orders/0", [b"1", b"2"])
        second = await prepared(other, "orders/0", [b"3"])
    # The client is closed, but its prepared transaction remains. A handle can be sent to another process.
    handles = pickle.loads(pickle.dumps([second, first]))
    assert handles == [second, first]
    assert [(txn.state, txn.messages) for txn in await client.list_txns()] == [("prepared", 2), ("prepared", 1)]
    assert await payloads(client, "orders/0") == []

    done = await client.commit_prepared(handles, APP, 0)

    assert (done.messages, done.last_tick, done.durability, done.duplicate) == (3, done.first_tick + 2, "sync", False)
    assert await payloads(client, "orders/0") == [b"3", b"1", b"2"]
    assert await client.list_txns() == []
    assert (await client.describe_txn(first.txn_id)).state == "committed"


@pytest.mark.not_on_engine(reason="a log in an engine acknowledges `os` as `sync`")
async def test_a_commit_in_mode_os_and_its_repetition_say_so(client: AsyncClient) -> None:
    for app_version in (7, 7):
        handle = await prepared(client, "orders/0", [b"once"])
        assert (await client.commit_prepared([handle], APP, app_version, durability="os")).durability == "os"


async def test_the_same_version_is_committed_once(client: AsyncClient) -> None:
    first = await client.commit_prepared([await prepared(client, "orders/0", [b"once"])], APP, 7)
    again = await prepared(client, "orders/0", [b"again"])

    repeated = await client.commit_prepared([again], APP, 7)

    assert repeated == tidelog.PreparedCommit(first.first_tick, first.last_tick, 1, "sync", duplicate=True)
    assert await payloads(client, "orders/0") == [b"once"]
    with pytest.raises(tidelog.AppVersionPassedError) as caught:
        await client.commit_prepared([], APP, 6)
    assert (caught.value.effect, caught.value.values["last_version"]) == ("none", "7")
    with pytest.raises(tidelog.TransactionStateError):
        await client.commit_prepared([again], APP, 8)


async def test_what_is_no_repetition_is_refused(client: AsyncClient) -> None:
    first = await prepared(client, "orders/0", [b"once"])
    await client.commit_prepared([first], APP, 7, query_id="one", any_vchannel=True)
    again = await prepared(client, "orders/0", [b"again", b"again"])

    for mismatch, version, query_id in (("messages", 7, "one"), ("query", 7, "two"), ("query", 8, "")):
        with pytest.raises(tidelog.AppCommitMismatchError, match="under another app_id") as caught:
            await client.commit_prepared([again], APP, version, query_id=query_id)
        assert (caught.value.effect, caught.value.values["mismatch"]) == ("none", mismatch)
    done = await client.commit_prepared([again], APP, 8, query_id="one")
    assert (done.messages, done.duplicate) == (2, False)


async def test_columns_and_messages_keep_the_order_in_which_they_were_appended(client: AsyncClient) -> None:
    async with client.txn() as txn:
        await txn.append("payments", [b"seed1", Message(b"seed2", key=b"k", properties={"a": "b"})])
    [seed] = [batch async for batch in client.scan("payments")]
    txn = client.txn()
    await txn.append("orders/0", b"1")
    await txn.append_columns("orders/0", encode_payloads([b"2", b"3"]))
    await txn.append("orders/0", b"4")
    await txn.append("orders/1", b"elsewhere")
    # Columns from a scan, of messages of another transaction.
    await txn.append_columns("orders/0", seed.columns)
    await txn.append("orders/0", b"5")
    handle = await txn.prepare(APP)
    assert handle is not None
    assert handle.messages == 8

    await client.commit_prepared([handle], APP, 0)

    assert await payloads(client, "orders/0") == [b"1", b"2", b"3", b"4", b"seed1", b"seed2", b"5"]
    assert await payloads(client, "orders/1") == [b"elsewhere"]
    keys = [key async for batch in client.scan("orders/0") for key in batch.keys]
    assert keys == [None] * 5 + [b"k", None]


async def test_columns_can_be_committed_alone_and_bad_ones_are_refused(client: AsyncClient) -> None:
    async with client.txn() as txn:
        await txn.append_columns("orders/0", encode_payloads([b"1"]))
        empty = encode_payloads([b"x"])
        empty.count = 0
        with pytest.raises(tidelog.InvalidRequestError):
            await txn.append_columns("orders/0", empty)
    assert txn.result.results["orders/0"].first_tick == txn.result.last_tick
    with pytest.raises(tidelog.TransactionStateError):
        await txn.append_columns("orders/0", encode_payloads([b"2"]))
    assert await payloads(client, "orders/0") == [b"1"]


async def test_a_transaction_without_messages_is_not_prepared(client: AsyncClient) -> None:
    async with client.txn() as txn:
        assert await txn.prepare(APP) is None
    with pytest.raises(tidelog.TransactionStateError):
        await txn.append("orders/0", b"x")
    assert await client.list_txns() == []


async def test_conditions_positions_and_barriers_are_for_commits_of_one_transaction(client: AsyncClient) -> None:
    conditions: list[AppendConditions] = [{"expected_last_tick": 0}, {"fencing_token": 3}, {"barrier_tick": 1}]
    for condition in conditions:
        txn = client.txn()
        await txn.append("orders/0", b"x", **condition)
        with pytest.raises(tidelog.InvalidRequestError):
            await txn.prepare(APP)
        await txn.rollback()
    async with client.txn() as txn:
        await txn.append("orders/0", b"1")
        for app_id, terms in (
            (APP, {"keepalive_s": 0.0}), (APP, {"keepalive_s": 86_401.0}), (APP, {"app_version": -1}),
            (APP, {"app_version": 1 << 63}),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="expected"):
                await txn.prepare(app_id, **terms)
        with pytest.raises(tidelog.InvalidRequestError):
            await txn.prepare("")
        await txn.append("orders/0", b"2")
    assert await payloads(client, "orders/0") == [b"1", b"2"]
    for version in (-1, 1 << 63):
        with pytest.raises(ValueError, match="app_version"):
            await client.commit_prepared([], APP, version)


async def test_leaving_the_block_of_a_prepared_transaction_neither_commits_it_nor_rolls_it_back(
    client: AsyncClient,
) -> None:
    handles = []
    async with client.txn() as txn:
        await txn.append("orders/0", b"1")
        handles.append(await txn.prepare(APP, keepalive_s=60.0))
        for call in (txn.commit(), txn.rollback(), txn.append("orders/0", b"x"), txn.prepare(APP)):
            with pytest.raises(tidelog.TransactionStateError, match="prepared"):
                await call
    with pytest.raises(KeyError):
        async with client.txn() as txn:
            await txn.append("orders/0", b"2")
            handles.append(await txn.prepare(APP, keepalive_s=60.0))
            raise KeyError

    assert [txn.state for txn in await client.list_txns()] == ["prepared"] * 2
    assert await payloads(client, "orders/0") == []
    await client.commit_prepared([handle for handle in handles if handle], APP, 0)
    assert await payloads(client, "orders/0") == [b"1", b"2"]


async def test_prepared_transactions_are_rolled_back_by_whoever_has_them(client: AsyncClient) -> None:
    never, committed = [await prepared(client, "orders/0", [name]) for name in (b"never", b"committed")]
    async with AsyncClient(client.endpoint) as other:
        for _ in range(2):
            await other.roll_back_prepared([never])
        await other.commit_prepared([committed], APP, 0)
        with pytest.raises(tidelog.TransactionStateError):
            await other.roll_back_prepared([never, committed])
    assert await payloads(client, "orders/0") == [b"committed"]


async def test_a_prepared_transaction_gives_no_signs_of_life_and_expires(client: AsyncClient) -> None:
    txn = client.txn(keepalive_s=60.0)
    await txn.append("orders/0", b"late")
    handle = await txn.prepare(APP, keepalive_s=0.05)
    assert handle is not None
    await eventually(client.list_txns, lambda found: not found)
    with pytest.raises(tidelog.TransactionExpiredError):
        await client.commit_prepared([handle], APP, 0)


async def test_one_that_has_expired_cannot_be_prepared(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", 100)
    txn = client.txn()
    await txn.append("orders/0", bytes(1_000))
    async with asyncio.timeout(60):
        while not (listed := await client.list_txns()):
            await asyncio.sleep(0.01)
    await client.abort_txn(listed[0].txn_id, "a test")
    with pytest.raises(tidelog.TransactionExpiredError):
        await txn.prepare(APP)
    await txn.rollback()


async def test_the_synchronous_client_does_the_same(tmp_path: Path) -> None:
    def work(endpoint: str) -> None:
        with Client(endpoint) as client, Client(endpoint) as other:
            client.create_channel("orders")
            handles = []
            for each in (client, other):
                with each.txn() as txn:
                    txn.append("orders", b"first")
                    txn.append_columns("orders", encode_payloads([b"second"]))
                    handles.append(txn.prepare(APP, app_version=3, keepalive_s=60.0))
            named = [handle for handle in handles if handle is not None]
            with client.txn() as empty:
                assert empty.prepare(APP) is None
            assert [txn.state for txn in client.list_txns()] == ["prepared"] * 2
            done = other.commit_prepared(named, APP, 3, timeout_s=10.0)
            assert client.commit_prepared(named, APP, 3).first_tick == done.first_tick
            read = [payload for batch in client.scan("orders") for payload in batch.payloads]
            assert read == [b"first", b"second"] * 2
            with client.txn() as txn:
                txn.append("orders", b"never")
                never = txn.prepare(APP, keepalive_s=60.0)
            assert never is not None
            other.roll_back_prepared([never])
            assert client.list_txns() == []

    async with running_server(tmp_path) as running:
        await asyncio.to_thread(work, running.grpc_endpoint)


async def test_nobody_commits_or_ends_what_another_principal_has_prepared(tmp_path: Path) -> None:
    async with secured_server(tmp_path) as secured:
        grants = ("append:orders", "txn:orders")
        owner_token, thief_token = [await secured.token(*grants) for _ in range(2)]
        async with (
            secured.client() as admin,
            secured.client(owner_token) as owner,
            secured.client(owner_token) as colleague,
            secured.client(thief_token) as thief,
        ):
            await admin.create_channel("orders")
            handle = await prepared(owner, "orders/0", [b"1"], app_version=4)
            [listed] = await admin.list_txns()
            # Everything that an administrator's list shows, also joined as principal and client id.
            spied = PreparedTransaction(listed.txn_id, listed.client_id, 1)
            joined = PreparedTransaction(listed.txn_id, f"{listed.principal} {listed.client_id}", 1)
            for stolen in (handle, spied, joined):
                # Rejected as if the transaction did not exist.
                with pytest.raises(tidelog.TransactionNotFoundError):
                    await thief.commit_prepared([stolen], APP, 4)
                with pytest.raises(tidelog.TransactionNotFoundError):
                    await thief.roll_back_prepared([stolen])

            # Another principal's application of the same name is separate: its versions do not affect the owner's.
            assert not (await thief.commit_prepared([], APP, 1_000)).duplicate
            done = await colleague.commit_prepared([handle], APP, 4)
            assert (done.messages, done.duplicate) == (1, False)
            assert (await owner.commit_prepared([handle], APP, 4)).duplicate
            with pytest.raises(tidelog.AppVersionPassedError):
                await thief.commit_prepared([], APP, 4)
            assert await payloads(admin, "orders/0") == [b"1"]
