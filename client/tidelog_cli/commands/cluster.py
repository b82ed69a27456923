"""``tidelog cluster``: nodes of a cluster, and locations of channels."""

from collections.abc import Mapping

import typer

from tidelog import AsyncClient, ChannelOwner, ClusterDescription
from tidelog_cli.commands.channels import PatternsArgument
from tidelog_cli.connection import PatientServer
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.option_groups import add_group
from tidelog_cli.options.named import channels_named
from tidelog_cli.output.records import OutputOption, Record, note, print_records
from tidelog_cli.output.watch import Watch


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    add_group(app, "cluster", "Show the nodes of a cluster and the channels they own.", [ls, where])


def ls(*, watch: Watch, server: PatientServer, output: OutputOption = None) -> None:
    """List the running nodes and what each owns, and then the processes that stand by. The leader allocates ticks.

    A standby applies the logs of the nodes that it follows. How far it was behind each of them at its last report is in
    the same order: positions of the log, and seconds since it had all of it.
    """

    def look() -> list[Record]:
        cluster = server.ask(lambda client: client.describe_cluster())
        if not cluster.cluster_id and not watch.watch:
            note(f"the server at {server.address} is not part of a cluster: it stores its metadata itself")
        return _processes(cluster)

    watch.show(look, output)


def where(
    channels: PatternsArgument,
    server: PatientServer,
    output: OutputOption = None,
) -> None:
    """Show the node that owns each channel, and its address. Any node of the cluster can answer."""

    async def command(client: AsyncClient) -> tuple[list[str], Mapping[str, ChannelOwner]]:
        names = await channels_named(client, channels)
        return names, await client.locate_channels(names)

    names, found = server.ask(command)
    print_records(
        [
            {"channel": name, "node": owner.node_id, "address": owner.address, "term": owner.term}
            for name in names
            if (owner := found.get(name)) is not None
        ],
        output,
    )
    if missing := [name for name in names if name not in found]:
        raise CommandError(
            f"{', '.join(missing)} not found: `tidelog channel ls` lists the channels", ExitCode.NOT_FOUND
        )


def _processes(cluster: ClusterDescription) -> list[Record]:
    nodes: list[Record] = [
        {
            "node": node.node_id, "address": node.address, "http": node.http_address, "term": node.term,
            "leader": node.node_id == cluster.leader_node_id, "channels": node.channels,
            "vchannels": node.vchannels, "version": node.version, "standby": None, "follows": None,
            "lag_positions": None, "lag_seconds": None,
        }
        for node in cluster.nodes
    ]  # fmt: skip
    standbys: list[Record] = [
        {
            "node": None, "address": each.address, "http": each.http_address, "term": None, "leader": None,
            "channels": None, "vchannels": None, "version": each.version, "standby": each.process,
            "follows": [node.node_id for node in each.follows],
            "lag_positions": [node.lag_positions for node in each.follows],
            "lag_seconds": [node.lag_seconds for node in each.follows],
        }
        for each in cluster.standbys
    ]  # fmt: skip
    return nodes + standbys
