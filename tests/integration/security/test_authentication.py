"""Tokens, permissions, quotas and the audit log of a running server, as clients meet them.

Method: a server with TLS and authentication in this process, the public client, and short waits for what must happen
within 5 s.
"""

import asyncio
import dataclasses
import json
import stat
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

import tidelog
from tidelog import AsyncClient, At, OverloadedError, PermissionDeniedError, TokenFile, UnauthenticatedError
from tidelog.v1 import error_pb2
from tidelog.v1 import group_service_pb2 as group_pb
from tidelog.v1 import transaction_service_pb2 as pb
from tidelog_cli.commands.audit import AuditChainError, check_chain
from tidelog_server.core.errors import StorageFailedError
from tidelog_server.security.authenticator import Shown, token_of
from tidelog_server.security.bootstrap import BOOTSTRAP_LIFETIME_MS, open_bootstrap
from tidelog_server.security.jwt_tokens import BadTokenError
from tidelog_testing.loads.workload import detail_of
from tidelog_testing.parts.fixtures import secured_with
from tidelog_testing.parts.grpc_calls import a_request, running_server
from tidelog_testing.servers.certificates import Signer, write_key_set
from tidelog_testing.servers.secured import Secured, jwt_settings, secured_server, until

secured = secured_with()


async def audit_lines(secured: Secured) -> list[bytes]:
    async with secured.client() as client:
        return [bytes(payload) async for batch in client.scan("_audit") for payload in batch.payloads]


async def audited(secured: Secured, event: str) -> list[dict[str, object]]:
    return [found for line in await audit_lines(secured) if (found := json.loads(line))["event"] == event]


async def test_the_first_token_is_for_the_owner_for_a_while_and_until_there_is_an_administrator(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running_server(folder, auth__kind="on") as server:
        path = folder / "bootstrap-token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with AsyncClient(server.grpc_endpoint, token=path.read_text().strip()) as client:
            with pytest.raises(PermissionDeniedError):
                await client.create_channel("orders")
            await client.create_token("a reader", ["read:*"])
            assert path.exists()
            await client.create_token("an administrator", ["admin.write"])
            assert not path.exists()
            with pytest.raises(UnauthenticatedError):
                await client.create_token("another", ["admin.write"])
    async with running_server(folder, auth__kind="on"):
        assert not path.exists(), "there is an administrator"


def test_the_first_token_runs_out_and_comes_from_this_machine_only(tmp_path: Path) -> None:
    first = open_bootstrap(tmp_path, 1_000)
    text = first.path.read_text().strip()
    assert first.matches(text, 1_000 + BOOTSTRAP_LIFETIME_MS - 1)
    assert not first.matches(text, 1_000 + BOOTSTRAP_LIFETIME_MS)
    assert not first.matches(open_bootstrap(tmp_path, 1_000).path.read_text().strip(), 1_000)
    for is_local, is_encrypted in ((True, False), (False, True), (True, True)):
        assert token_of(Shown((f"Bearer {text}",), b"", "10.0.0.1", is_local, is_encrypted)) == text
    with pytest.raises(BadTokenError, match="unencrypted"):
        token_of(Shown((f"Bearer {text}",), b"", "10.0.0.1", is_local=False, is_encrypted=False))


async def test_a_token_may_do_what_it_was_given_and_nothing_else(secured: Secured) -> None:
    async with secured.client() as admin:
        for name in ("a", "ab", "a.b", "other"):
            await admin.create_channel(name)
    token = await secured.token("append:a.*", "read:a", "txn:a.*", "broadcast:*", "group.consume:g")
    async with secured.client(token) as client:
        await client.append("a.b", b"x")
        for name in ("a", "ab", "other", "missing"):
            with pytest.raises(PermissionDeniedError) as denied:
                await client.append(name, b"x")
            assert (denied.value.verb, denied.value.name, denied.value.effect) == ("append", name, "none")
        assert [batch async for batch in client.scan("a")] == []
        for names in (["a.b"], ["a", "other"], ["_audit"]):
            with pytest.raises(PermissionDeniedError):
                [batch async for batch in client.scan(names)]
        # A broadcast and a transaction need it on every target.
        with pytest.raises(PermissionDeniedError):
            await client.broadcast(["a.b", "a"], b"x")
        await client.broadcast(["a.b"], b"x")
        async with client.txn() as transaction:
            await transaction.append("a.b", b"y")
        for call in (
            client.trim("a.b", everything=True),
            client.destroy_channels(["a.b"]),
            client.create_channel("a.c"),
        ):
            with pytest.raises(PermissionDeniedError):
                await call
        assert [found.name async for found in client.list_channels()] == ["a", "a.b", "ab", "other"], "broadcast:*"
    async with secured.client(await secured.token("read:a")) as client:
        assert [found.name async for found in client.list_channels()] == ["a"]


async def test_what_is_not_there_and_what_is_not_yours_are_told_alike(secured: Secured) -> None:
    async with secured.client() as admin:
        await admin.create_channel("secret")
    async with secured.client(await secured.token("read:mine")) as client:
        for call in (lambda name: client.describe_channels([name]), client.latest_mvcc_tick):
            told = []
            for name in ("secret", "nothing"):
                with pytest.raises(PermissionDeniedError) as denied:
                    await call(name)
                told.append(str(denied.value).replace(name, "NAME"))
            assert told[0] == told[1]


async def test_a_revoked_token_ends_open_streams(secured: Secured) -> None:
    async with secured.client() as admin:
        await admin.create_channel("orders")
        made = await admin.create_token("short", ["append:orders", "read:orders", "group.consume:g"])
        await admin.create_group("g", ["orders"])
        async with secured.client(made.token, retry=tidelog.Retry(give_up_s=1.0)) as client:
            scan = client.scan("orders", until=At.follow())
            await client.append("orders", b"x")
            assert len(await anext(scan)) == 1
            begun_s = time.monotonic()
            await admin.revoke_token(made.description.token_id)
            with pytest.raises(UnauthenticatedError):
                async with asyncio.timeout(5):
                    await anext(scan)
            assert time.monotonic() - begun_s < 5
            with pytest.raises(UnauthenticatedError):
                await client.append("orders", b"y")


async def test_a_revoked_token_ends_streams_that_are_written_to(secured: Secured) -> None:
    async with secured.client() as admin, secured.channel() as channel:
        await admin.create_channel("orders")
        await admin.create_group("g", ["orders"])
        made = await admin.create_token("short", ["append:orders", "read:orders", "group.consume:g"])
        metadata = (("authorization", f"Bearer {made.token}"),)
        appending: Any = channel.stream_stream("/tidelog.v1.WalService/AppendStream")
        joining: Any = channel.stream_stream("/tidelog.v1.GroupService/JoinGroup")
        appends, member = appending(metadata=metadata), joining(metadata=metadata)
        await appends.write(a_request("orders", b"x", request_id=1).SerializeToString())
        assert await appends.read()
        join = group_pb.JoinGroupStart(group="g", channels=["orders"])
        await member.write(group_pb.JoinGroupRequest(join=join).SerializeToString())
        assert await member.read()
        await admin.revoke_token(made.description.token_id)
        for stream in (appends, member):
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                async with asyncio.timeout(5):
                    while await stream.read() is not grpc.aio.EOF:
                        pass
            detail = detail_of(ended.value)
            assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert detail is not None
            assert detail.reason == error_pb2.REASON_CREDENTIALS_EXPIRED


async def test_a_hundred_streams_end_when_their_token_runs_out(secured: Secured) -> None:
    async with secured.client() as admin:
        await admin.create_channel("orders")
    token = await secured.token("read:orders", lifetime_s=1.5)
    async with secured.client(token) as client:
        scans = [client.scan("orders", until=At.follow()) for _ in range(100)]
        ends = await asyncio.wait_for(asyncio.gather(*map(anext, scans), return_exceptions=True), 6.5)
        assert [type(end) for end in ends] == [UnauthenticatedError] * 100


async def test_a_scan_goes_on_with_a_token_that_was_renewed(secured: Secured, tmp_path: Path) -> None:
    async with secured.client() as admin:
        await admin.create_channel("orders")
        path = tmp_path / "token"
        path.write_text(await secured.token("read:orders", "append:orders", lifetime_s=2))
        async with secured.client(TokenFile(path)) as client:
            scan = client.scan("orders", until=At.follow())
            await client.append("orders", b"one")
            assert len(await anext(scan)) == 1
            path.write_text(await secured.token("read:orders", "append:orders"))
            await until(lambda: len(secured.server._security.tokens.records) >= 3)
            await asyncio.sleep(3)  # The first token's life, which only time ends.
            await admin.append("orders", b"two")
            assert [bytes(payload) for payload in (await asyncio.wait_for(anext(scan), 60)).payloads] == [b"two"]


async def test_signed_tokens_follow_their_keys_and_grants(tmp_path: Path) -> None:
    first, second = Signer("one"), Signer("two", kind="ES256")
    grants, keys = tmp_path / "grants.toml", write_key_set(tmp_path / "jwks.json", first)
    grants.write_text('[roles]\ntester = ["read:*"]\n[principals]\n"jwt:bob" = ["append:orders", "role:tester"]\n')
    async with secured_server(tmp_path, **jwt_settings(keys, grants)) as secured:
        async with secured.client() as admin:
            await admin.create_channel("orders")
        authenticator = secured.server._security.authenticator
        async with secured.client(first.token(sub="bob", roles=[])) as bob, secured.client(second.token()) as carol:
            await bob.append("orders", b"x")
            with pytest.raises(UnauthenticatedError):
                await carol.latest_mvcc_tick("orders")
            write_key_set(keys, second)
            await until(lambda: "two" in authenticator.keys)
            await carol.latest_mvcc_tick("orders")
            with pytest.raises(PermissionDeniedError):
                await carol.append("orders", b"x")
            with pytest.raises(UnauthenticatedError):
                await bob.latest_mvcc_tick("orders")
            before = authenticator.grants_file
            grants.write_text("[roles]\ntester = [\n")
            await until(lambda: secured.server._security._grants.failures == 1)  # type: ignore[union-attr]  # its permissions are on
            assert authenticator.grants_file is before
            grants.write_text('[roles]\ntester = ["append:orders"]\n')
            await until(lambda: authenticator.grants_file is not before)
            await carol.append("orders", b"x")


async def test_a_spent_quota_tells_how_long_to_wait_and_the_client_waits(tmp_path: Path) -> None:
    async with secured_server(tmp_path, quota__requests_per_s=20, quota__request_burst=10) as secured:
        token = await secured.token("read:*")
        async with secured.channel() as channel:
            call: Any = channel.unary_unary("/tidelog.v1.WalService/GetWalName")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                for _ in range(100):
                    await call(b"", metadata=(("authorization", f"Bearer {token}"),))
            detail = detail_of(refused.value)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert detail is not None
            assert 1 <= int(detail.values["retry_after_ms"]) <= 1_000
            trailing = dict(refused.value.trailing_metadata() or ())
            assert b"type.googleapis.com/google.rpc.RetryInfo" in bytes(trailing["grpc-status-details-bin"])
        async with secured.client(token) as client:
            begun_s = time.monotonic()
            for _ in range(30):
                assert await client.wal_name() == "rocksdb"
            assert time.monotonic() - begun_s >= 0.9, "20 a second"


async def test_bytes_beyond_the_quota_are_held_back_and_not_refused(tmp_path: Path) -> None:
    async with secured_server(tmp_path, quota__in_bytes_per_s="200000", quota__out_bytes_per_s="400000") as secured:
        async with secured.client() as client:
            await client.create_channel("orders")
            begun_s = time.monotonic()
            for _ in range(6):
                await asyncio.gather(*(client.append("orders", bytes(10_000)) for _ in range(10)))
            assert time.monotonic() - begun_s >= 1.0
            begun_s = time.monotonic()
            assert sum([len(batch) async for batch in client.scan("orders", max_response_bytes=20_000)]) == 60
            assert time.monotonic() - begun_s >= 0.3


async def test_bytes_of_deliveries_and_blobs_count_in_the_quota_of_bytes(tmp_path: Path) -> None:
    async with (
        secured_server(tmp_path, quota__out_bytes_per_s="400000") as secured,
        secured.client() as admin,
        secured.client(await secured.token("mailbox.receive:*", "blob.get")) as client,
    ):
        await admin.mailboxes.create("jobs")
        await admin.mailbox("jobs").send_many([bytes(60_000)] * 10)
        blob = await admin.blobs.put(bytes(600_000))
        begun_s = time.monotonic()
        for _ in range(10):
            await client.mailbox("jobs").fetch()
        # All but the bytes of the first second, less the last response, which nothing waits for.
        assert time.monotonic() - begun_s >= 0.3
        begun_s = time.monotonic()
        for _ in range(2):
            assert len(await client.blobs.get(blob)) == 600_000
        assert time.monotonic() - begun_s >= 1.0


async def test_an_address_that_guesses_is_held_off_while_good_tokens_go_on(tmp_path: Path) -> None:
    async with secured_server(tmp_path, quota__auth_failures_per_minute=5) as secured, secured.client() as good:
        async with secured.client("tdl_guess", timeout_s=0.2) as guesser:
            refusals: list[tidelog.TidelogError] = []
            for _ in range(8):
                with pytest.raises(tidelog.TidelogError) as refused:
                    await guesser.wal_name()
                refusals.append(refused.value)
            assert list(map(type, refusals)) == [UnauthenticatedError] * 5 + [OverloadedError] * 3
            assert all(0 < each.retry_after_s <= 12 for each in refusals if isinstance(each, OverloadedError))
        assert await good.wal_name() == "rocksdb"


async def test_every_administrative_call_and_every_denial_is_in_the_audit_log_once(secured: Secured) -> None:
    async with secured.client() as admin:
        await admin.create_channel("orders")
        await admin.fence("orders", 1)
        await admin.trim("orders", everything=True)
        await admin.create_group("g", ["orders"])
        await admin.destroy_group("g")
        made = await admin.create_token("a principal", ["read:orders"])
        async with secured.client(made.token) as client:
            for _ in range(3):
                with pytest.raises(PermissionDeniedError):
                    await client.trim("orders", everything=True)
        await admin.revoke_token(made.description.token_id)
        with pytest.raises(tidelog.InvalidRequestError):
            await admin.revoke_token(made.token)
        await admin.destroy_channels(["orders"])
    methods = [str(event["method"]).partition("/")[2] for event in await audited(secured, "admin")]
    assert methods == [
        "CreateToken", "CreateChannels", "SetFencingToken", "Trim", "CreateGroup", "DestroyGroup", "CreateToken",
        "RevokeToken", "RevokeToken", "DestroyChannels",
    ]  # fmt: skip
    assert len(await audited(secured, "denied")) == 3
    assert len(await audited(secured, "start")) == 1
    lines = await audit_lines(secured)
    assert check_chain(lines) == len(lines)
    for gone in range(len(lines) - 1):
        # A chain that lost its end cannot tell; one that lost its beginning was cut by retention.
        if gone:
            with pytest.raises(AuditChainError):
                check_chain(lines[:gone] + lines[gone + 1 :])
    with pytest.raises(AuditChainError):
        check_chain([line.replace(b"WalService/Trim", b"WalService/Trix") for line in lines])


async def test_the_chain_goes_on_after_a_restart(tmp_path: Path) -> None:
    lengths = []
    async with secured_server(tmp_path) as secured:
        lengths.append(len(await audit_lines(secured)))
        admin = secured.admin
    again = {"auth__kind": "on", **secured.authority.server()}
    async with running_server(tmp_path / "data", **again) as server:
        lines = await audit_lines(Secured(server, secured.authority, admin))
    assert check_chain(lines) == lengths[0] + 1


async def test_nobody_can_write_to_the_audit_log_and_administration_stops_where_it_cannot(secured: Secured) -> None:
    async with secured.client() as admin:
        calls = (
            admin.append("_audit", b"x"), admin.trim("_audit", everything=True), admin.destroy_channels(["_audit"]),
            admin.broadcast(["_audit"], b"x"), admin.fence("_audit", 1), admin.open_producer("_audit", "p"),
        )  # fmt: skip
        for call in calls:
            with pytest.raises((PermissionDeniedError, tidelog.InvalidRequestError)):
                await call
        await admin.create_channel("orders")
        admission = secured.server._log.admission
        # As if the disk had failed under the audit log.
        admission.failure = StorageFailedError("a test")
        try:
            async with secured.client(timeout_s=4.0) as hasty:
                with pytest.raises(tidelog.AuditFailedError):
                    await hasty.destroy_channels(["orders"])
        finally:
            admission.failure = None
        assert (await admin.describe_channels(["orders"]))[0].name == "orders"


async def test_transactions_belong_to_a_principal_whatever_a_client_calls_itself(secured: Secured) -> None:
    async with secured.client() as admin:
        await admin.create_channel("orders")
    tokens = [await secured.token("append:*", "txn:*") for _ in range(2)]
    async with secured.channel() as channel:

        async def called(token: str, method: str, request: Message) -> bytes:
            metadata = (("authorization", f"Bearer {token}"), ("tidelog-client-id", "same"))
            stub: Any = channel.unary_unary(f"/tidelog.v1.TransactionService/{method}")
            return bytes(await stub(request.SerializeToString(), metadata=metadata))

        begun = await called(tokens[0], "BeginTxn", pb.BeginTxnRequest(vchannels=["orders"]))
        request = pb.RollbackTxnRequest(txn_id=pb.BeginTxnResponse.FromString(begun).txn_id)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await called(tokens[1], "RollbackTxn", request)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        await called(tokens[0], "RollbackTxn", request)


async def test_where_the_disk_is_full_room_can_be_made_and_that_is_audited(secured: Secured) -> None:
    async with secured.client() as admin:
        await admin.create_channel("orders")
        await admin.append("orders", b"x")
        admission = secured.server._log.admission
        limits = admission.limits
        # As if it were: what the operator wants to keep free is more than there is.
        admission.limits = dataclasses.replace(limits, min_free_disk_bytes=1 << 60)
        try:
            async with secured.client(timeout_s=4.0) as hasty:
                with pytest.raises(tidelog.DiskFullError):
                    await hasty.append("orders", b"y")
            await admin.trim("orders", everything=True)
        finally:
            admission.limits = limits
    assert str((await audited(secured, "admin"))[-1]["method"]).endswith("/Trim")
