"""Several servers on one etcd: who owns what, who hands out ticks, and what happens when a lease is lost.

Method: real server processes with leases of a few seconds on a real etcd. Waiting is for a state that must come.

Promises of docs/reference/guarantees.md: G43, G44, G46.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import tidelog
from tidelog import AsyncClient, AsyncCluster, NotOwnerError, TlsOptions, UnavailableError
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.root import app
from tidelog_server.security.bootstrap import FILE_NAME
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.certificates import Authority
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.ports import free_port
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess
from tidelog_testing.servers.secured import EVERYTHING

WITHIN_S = 40.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cluster").mkdir()
    return tmp_path / "cluster"


@pytest.fixture
async def cluster(folder: Path, etcd: EtcdProcess) -> AsyncIterator[ClusterOfProcesses]:
    # Long enough for machines on which everything waits for the processor.
    with ClusterOfProcesses(folder, etcd, lease_ttl_s=5, prefix=f"/{folder.parent.name}/") as running:
        for node_id in ("n1", "n2", "n3"):
            await asyncio.to_thread(running.start, node_id)
        yield running


def addresses(cluster: ClusterOfProcesses) -> list[str]:
    return [node.grpc for node in cluster.nodes.values()]


async def appended(client: AsyncClient, vchannel: str, payload: bytes) -> tidelog.AppendResult:
    """Append, however long the server takes to come back; twice, if the lease ran out again before the answer."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return await client.append(vchannel, payload)
            except (UnavailableError, tidelog.AppendUnknownError):
                pass
            await asyncio.sleep(0.05)


async def test_a_call_of_two_nodes_of_which_one_is_stopped_lists_what_is_done(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(addresses(cluster), timeout_s=2.0) as client:
        await client.create_channels(["first", "second"])
        owners = {name: await client.owner_of(name) for name in ("first", "second")}
        assert owners["first"].node_id != owners["second"].node_id
        stopped = cluster.nodes[owners["second"].node_id]
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            begin_s = time.monotonic()
            with pytest.raises(tidelog.ChannelsPartlyDoneError) as ended:
                await client.alter_channels(["first", "second"], retention=tidelog.Retention())
            assert time.monotonic() - begin_s < 2.0 + 10.0
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
    assert (ended.value.done, ended.value.not_done, ended.value.unknown) == (("first",), (), ("second",))


async def test_channels_are_spread_and_every_node_says_where_they_are(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(addresses(cluster)) as client:
        created = await client.create_channels([f"c{number}" for number in range(6)], vchannels=2)
        assert [len(channel.vchannels) for channel in created] == [2] * 6
        described = await client.describe()
        assert [(node.node_id, node.channels, node.vchannels) for node in described.nodes] == [
            ("n1", 2, 4), ("n2", 2, 4), ("n3", 2, 4),
        ]  # fmt: skip
        assert described.leader_node_id == "n1"
        assert [channel.name async for channel in client.list_channels()] == [f"c{number}" for number in range(6)]

        results = [await (await client.vchannel(f"c{number}/1")).append(b"x") for number in range(6)]
        # One order over all nodes, and no tick twice.
        assert len({result.last_tick for result in results}) == 6

        owner = await client.owner_of("c0")
        for node_id, node in cluster.nodes.items():
            async with AsyncClient(node.grpc) as direct:
                if node_id == owner.node_id:
                    assert (await direct.latest_mvcc_tick("c0/1")) == results[0].last_tick
                else:
                    with pytest.raises(NotOwnerError) as refused:
                        await direct.append("c0/1", b"elsewhere")
                    assert (refused.value.node_id, refused.value.address) == (owner.node_id, owner.address)
                    assert refused.value.effect == "none"

        # Two cannot create the same, wherever they ask.
        twice = [AsyncClient(address) for address in addresses(cluster)]
        outcomes = await asyncio.gather(*(each.create_channel("same") for each in twice), return_exceptions=True)
        assert sum(isinstance(outcome, tidelog.ChannelAlreadyExistsError) for outcome in outcomes) == 2
        for each in twice:
            await each.aclose()
        assert sorted(await client.destroy_channels([f"c{number}" for number in range(6)])) == [
            f"c{number}" for number in range(6)
        ]
        with pytest.raises(tidelog.ChannelNotFoundError):
            await client.owner_of("c0")


async def test_a_node_that_comes_back_has_a_greater_term_and_its_messages(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(addresses(cluster)) as client:
        names = [f"c{number}" for number in range(3)]
        await client.create_channels(names)
        owners = {name: await client.owner_of(name) for name in names}
        ticks = {name: (await (await client.vchannel(name)).append(b"before")).last_tick for name in names}
        # The one that leads and another one: the rest continues without them.
        for gone in ("n1", "n2"):
            cluster.nodes[gone].kill()
        dead = next(name for name in names if owners[name].node_id == "n1")
        alive = next(name for name in names if owners[name].node_id == "n3")

        async def is_told_dead() -> bool:
            try:
                await client.owner_of(dead)
            except UnavailableError as error:
                return "node 'n1'" in str(error) and "not running" in str(error)
            return False

        await eventually(is_told_dead)
        later = await appended(await client.client_of(alive), alive, b"after")
        assert later.last_tick > ticks[alive]

        async def leads() -> bool:
            return (await client.describe()).leader_node_id == "n3"

        await eventually(leads)

        for gone in ("n1", "n2"):
            await asyncio.to_thread(cluster.start, gone)

        async def is_back() -> bool:
            try:
                return (await client.owner_of(dead)).term > owners[dead].term
            except UnavailableError:
                return False

        await eventually(is_back)
        back = await client.client_of(dead)
        rows = [row.payload async for batch in back.scan(dead) for row in batch]
        assert rows == [b"before"]
        again = await appended(back, dead, b"again")
        assert again.last_tick > later.last_tick


async def test_a_reader_continues_once_the_node_of_its_channel_is_back(cluster: ClusterOfProcesses) -> None:
    events: list[tidelog.ReaderEvent] = []
    async with AsyncCluster(addresses(cluster)) as client:
        await client.create_channel("orders", vchannels=2)
        channel, owner = await client.channel("orders"), await client.owner_of("orders")
        other = next(node.grpc for node_id, node in cluster.nodes.items() if node_id != owner.node_id)
        async with channel.tail(on_event=events.append) as tail:
            cluster.nodes[owner.node_id].kill()
            await asyncio.to_thread(cluster.start, owner.node_id)
            await appended(await client.client_of("orders"), "orders/1", b"again")
            async with asyncio.timeout(WITHIN_S):
                batch = await anext(tail)

    assert (batch.vchannel, batch.payloads) == ("orders/1", [b"again"])
    assert (events[0].state, events[-1].state) == ("connected", "connected")
    async with AsyncClient(other) as elsewhere, elsewhere.scan("orders", on_event=events.append) as scan:
        with pytest.raises(NotOwnerError):
            await anext(scan)
    assert (events[-1].state, type(events[-1].error)) == ("fenced", NotOwnerError)


async def test_a_paused_node_is_refused_and_registers_anew(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(addresses(cluster)) as client:
        await client.create_channels(["c0", "c1", "c2"])
        owner = await client.owner_of("c1")
        paused = cluster.nodes[owner.node_id]
        direct = await client.client_of("c1")
        await direct.append("c1", b"before")
        follower = direct.tail("c1", start=tidelog.At.earliest())
        seen = [row.payload for row in await anext(aiter(follower))]
        assert seen == [b"before"]

        os.kill(paused.pid, signal.SIGSTOP)

        async def is_gone() -> bool:
            nodes = (await client.describe()).nodes
            return owner.node_id not in [node.node_id for node in nodes]

        await eventually(is_gone)
        os.kill(paused.pid, signal.SIGCONT)
        # The first thing that it is asked, before it has noticed anything.
        async with AsyncClient(paused.grpc) as other:
            try:
                await other.append("c1", b"too early", timeout_s=0.5)
            except (UnavailableError, tidelog.DeadlineError, tidelog.AppendUnknownError):
                pass
            else:
                # The client asked again, and was served once the node had registered again.
                nodes = {node.node_id: node for node in (await other.describe_cluster()).nodes}
                assert nodes[owner.node_id].term > owner.term
        await appended(direct, "c1", b"after")
        assert (await client.owner_of("c1")).node_id == owner.node_id

        async def has_new_term() -> bool:
            return (await client.owner_of("c1")).term > owner.term

        await eventually(has_new_term)
        rows = [row.payload async for batch in direct.scan("c1") for row in batch]
        assert rows[0] == b"before"
        assert rows[-1] == b"after"
        assert set(rows) <= {b"before", b"too early", b"after"}
        # The follower continues by itself.
        async with asyncio.timeout(WITHIN_S):
            while seen != rows:
                seen += [row.payload for row in await anext(aiter(follower))]
        await follower.aclose()
        assert "lease_lost" in paused.errors


@pytest.mark.extended
async def test_appends_go_on_without_etcd_while_the_lease_lasts_and_again_after_it(folder: Path) -> None:
    with (
        EtcdProcess(folder.parent / "etcd") as etcd,
        ClusterOfProcesses(folder, etcd, lease_ttl_s=4) as cluster,
    ):
        node = await asyncio.to_thread(cluster.start, "n1")
        async with AsyncClient(node.grpc) as client:
            await client.create_channel("c")
            await client.append("c", b"0")
            # A short absence of etcd changes nothing.
            await asyncio.to_thread(etcd.kill)
            await client.append("c", b"1")
            with pytest.raises((UnavailableError, tidelog.AppendUnknownError)):
                async with asyncio.timeout(WITHIN_S):
                    while True:
                        await client.append("c", b"2")
                        await asyncio.sleep(0.02)
            status, reason = await asyncio.to_thread(node.get, "/readyz")
            assert (status, "not ready" in reason) == (503, True)
            await asyncio.to_thread(etcd.start)
            await appended(client, "c", b"3")
            rows = [row.payload async for batch in client.scan("c") for row in batch]
            assert rows[:2] == [b"0", b"1"]
            assert rows[-1] == b"3"


async def test_a_node_waits_for_its_former_self_and_another_folder_is_refused(folder: Path, etcd: EtcdProcess) -> None:
    with ClusterOfProcesses(folder, etcd, lease_ttl_s=2, prefix=f"/{folder.parent.name}/") as cluster:
        first = await asyncio.to_thread(cluster.start, "n1")
        # The same id with another folder: it waits for the registration, and gives up.
        with pytest.raises(ServerDiedError) as died:
            await asyncio.to_thread(
                ServerProcess,
                folder / "impostor",
                {
                    "metadata.kind": "etcd", "metadata.etcd_endpoints": etcd.endpoint,
                    "metadata.etcd_prefix": f"/{folder.parent.name}/", "cluster.node_id": "n1",
                    "cluster.start_timeout_s": 2,
                },
            )  # fmt: skip
        assert died.value.code == ExitCode.UNAVAILABLE
        assert "registration_is_taken" in died.value.errors
        first.terminate()
        assert await asyncio.to_thread(first.wait) == 0
        # It gave its registration back, so it has it again at once.
        second = await asyncio.to_thread(cluster.start, "n1")
        second.terminate()
        assert await asyncio.to_thread(second.wait) == 0
        # The folder of n1 is not that of n2.
        with pytest.raises(ServerDiedError, match="belongs to node 'n1'") as died:
            await asyncio.to_thread(cluster.start, "n1", {"cluster.node_id": "n2"})
        assert died.value.code == ExitCode.DATA_LOSS


async def test_an_etcd_that_was_wiped_or_brought_back_is_refused(folder: Path) -> None:
    with (
        EtcdProcess(folder.parent / "etcd") as etcd,
        ClusterOfProcesses(folder, etcd, lease_ttl_s=2) as cluster,
    ):
        node = await asyncio.to_thread(cluster.start, "n1")
        async with AsyncClient(node.grpc) as client:
            await client.create_channel("c")
            await client.append("c", b"kept")
        node.terminate()
        await asyncio.to_thread(node.wait)
        await asyncio.to_thread(etcd.control, "del", "--prefix", "")
        with pytest.raises(ServerDiedError, match="has no cluster under this prefix"):
            await asyncio.to_thread(cluster.start, "n1")
        etcd.kill()
        with EtcdProcess(folder.parent / "wiped", address=etcd.endpoint) as wiped:
            known = json.loads((folder / "n1" / "CLUSTER").read_text().splitlines()[0])
            value = json.dumps({"version": 1, "cluster_id": known["cluster_id"]})
            # Even if an operator makes it look like the old one: its revisions differ.
            await asyncio.to_thread(wiped.control, "put", f"/{folder.name}/tidelog/cluster", value)
            with pytest.raises(ServerDiedError, match="restored to an earlier state"):
                await asyncio.to_thread(cluster.start, "n1")


async def test_without_an_etcd_a_start_ends_and_says_so(folder: Path) -> None:
    with pytest.raises(ServerDiedError, match="could not register within 1 s") as died:
        await asyncio.to_thread(
            ServerProcess,
            folder / "n1",
            {
                "metadata.kind": "etcd", "metadata.etcd_endpoints": f"127.0.0.1:{free_port()}",
                "cluster.node_id": "n1", "cluster.start_timeout_s": 1,
            },
        )  # fmt: skip
    assert died.value.code == ExitCode.UNAVAILABLE


async def test_the_command_line_tells_where_things_are(cluster: ClusterOfProcesses) -> None:
    async with AsyncCluster(addresses(cluster)) as client:
        await client.create_channels(["a", "b", "c"])
        owners = {name: await client.owner_of(name) for name in ("a", "b", "c")}
    some = addresses(cluster)[0]

    def run_now(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments], env={"TIDELOG_ENDPOINT": some, "COLUMNS": "200"})

    async def run(*arguments: str) -> Result:
        # Beside this event loop, for a command has one of its own.
        return await asyncio.to_thread(run_now, *arguments)

    nodes = [json.loads(line) for line in (await run("cluster", "ls")).stdout.splitlines()]
    assert [(node["node"], node["channels"], node["leader"]) for node in nodes] == [
        ("n1", 1, True), ("n2", 1, False), ("n3", 1, False),
    ]  # fmt: skip
    told = [json.loads(line) for line in (await run("cluster", "where", "a", "b", "c")).stdout.splitlines()]
    assert {each["channel"]: each["address"] for each in told} == {
        name: owner.address for name, owner in owners.items()
    }
    missing = await run("cluster", "where", "nowhere")
    assert isinstance(missing.exception, CommandError)
    assert missing.exception.code == ExitCode.NOT_FOUND
    foreign = next(name for name, owner in owners.items() if owner.address != some)
    described = await run("channel", "describe", foreign)
    assert json.loads(described.stdout)["name"] == f"{foreign}/0", "a command finds the owner"


async def test_nodes_that_are_closed_talk_to_each_other_over_tls_with_a_token(folder: Path, etcd: EtcdProcess) -> None:
    authority = Authority.make(folder)
    files = {name.replace("__", "."): path for name, path in authority.server().items()}
    secured = {"auth.kind": "on", "cluster.ca": authority.ca, **files}
    tls = TlsOptions(ca=authority.ca)
    with ClusterOfProcesses(folder, etcd, lease_ttl_s=10, prefix=f"/{folder.parent.name}/") as cluster:
        first = await asyncio.to_thread(cluster.start, "n1", secured)
        bootstrap = (folder / "n1" / FILE_NAME).read_text().strip()
        async with AsyncClient(first.grpc, tls=tls, token=bootstrap) as client:
            admin = await client.create_token("people", EVERYTHING)
        async with AsyncClient(first.grpc, tls=tls, token=admin.token) as client:
            nodes = await client.create_token("nodes", ["cluster"])
        token = folder / "token"
        token.write_text(nodes.token)
        # The first one has no token yet: no client has needed it.
        for node_id in ("n2", "n3"):
            await asyncio.to_thread(cluster.start, node_id, {**secured, "cluster.token_file": token})
        async with AsyncCluster(addresses(cluster), tls=tls, token=admin.token) as client:
            await client.create_channels(["a", "b", "c", "d", "e", "f"])
            for name in ("a", "b", "c", "d", "e", "f"):
                await (await client.vchannel(name)).append(b"x")
            assert {(await client.owner_of(name)).node_id for name in "abcdef"} == {"n1", "n2", "n3"}
        async with AsyncClient(first.grpc, tls=tls, token=nodes.token) as client:
            with pytest.raises(tidelog.PermissionDeniedError):
                await client.append("a", b"a node's token is for nodes")


async def test_a_node_waits_for_a_leader_that_does_not_answer_yet(folder: Path, etcd: EtcdProcess) -> None:
    with ClusterOfProcesses(folder, etcd, lease_ttl_s=2, prefix=f"/{folder.parent.name}/") as cluster:
        # A leader that is registered and does not listen, as while it opens its log.
        unheard = {"cluster.peer_address": f"127.0.0.1:{free_port()}"}
        await asyncio.to_thread(cluster.start, "n1", unheard)
        starting = asyncio.create_task(asyncio.to_thread(cluster.start, "n2", {"cluster.start_timeout_s": 30}))
        errors = folder / "n2.stderr"

        async def waits() -> bool:
            assert not starting.done()
            return errors.exists() and "waits_for_ticks" in errors.read_text()

        await eventually(waits)
        cluster.nodes["n1"].kill()

        async with AsyncClient((await starting).grpc) as client:
            await client.create_channel("c0")
            await appended(client, "c0", b"one")


@pytest.mark.extended
async def test_a_start_that_waits_in_vain_names_the_leader(folder: Path, etcd: EtcdProcess) -> None:
    with ClusterOfProcesses(folder, etcd, lease_ttl_s=5, prefix=f"/{folder.parent.name}/") as cluster:
        unheard = f"127.0.0.1:{free_port()}"
        await asyncio.to_thread(cluster.start, "n1", {"cluster.peer_address": unheard})

        with pytest.raises(
            ServerDiedError, match=f"could not register within 5 s; no ticks .* was called at {unheard}"
        ):
            await asyncio.to_thread(cluster.start, "n2", {"cluster.start_timeout_s": 5})
