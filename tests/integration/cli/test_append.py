"""``tidelog append`` to channels with several vchannels, its conditions and headers.

Method: one real server for the module, and each command in a separate process, without a terminal.
"""

import uuid

import pytest

import tidelog
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import Commands, records

COMMANDS = Commands()
succeeds, refused = COMMANDS.succeeds, COMMANDS.refused


@pytest.fixture
def channel(endpoint: str) -> str:
    name = f"c-{uuid.uuid4().hex[:8]}"
    succeeds(endpoint, "channel", "create", name, "--vchannels", "2")
    return name


def test_a_channel_with_several_vchannels_is_appended_to_by_key(endpoint: str, channel: str) -> None:
    lines = b"".join(b"key-%d:%d\n" % (number % 7, number) for number in range(500))

    appended = records(succeeds(endpoint, "append", channel, "--partition-key-delim", ":", stdin=lines))

    assert [record["vchannel"] for record in appended] == [f"{channel}/0", f"{channel}/1"]
    assert sum(record["messages"] for record in appended) == 500
    shown = records(succeeds(endpoint, "scan", channel, "-o", "jsonl"))
    home = {message["key"]: message["vchannel"] for message in shown}
    keys = sorted(home)
    chosen = tidelog.partition_keys([key.encode() for key in keys], 2)
    assert [home[key] for key in keys] == [f"{channel}/{index}" for index in chosen]
    assert all(home[message["key"]] == message["vchannel"] for message in shown)
    for record in appended:
        ticks = [int(message["tick"]) for message in shown if message["vchannel"] == record["vchannel"]]
        assert (int(record["first_tick"]), int(record["last_tick"]), record["messages"]) == (
            min(ticks), max(ticks), len(ticks),
        )  # fmt: skip


def test_a_transaction_of_the_command_line_is_divided_too(endpoint: str, channel: str) -> None:
    lines = b"".join(b"key-%d:%d\n" % (number, number) for number in range(500))

    appended = records(succeeds(endpoint, "append", channel, "--key-delim", ":", "--txn", stdin=lines))

    assert [record["vchannel"] for record in appended] == [f"{channel}/0", f"{channel}/1"]
    assert len({record["txn_id"] for record in appended}) == 1
    assert sum(record["messages"] for record in appended) == 500


def test_kafkas_partitioner_can_be_chosen(endpoint: str, channel: str) -> None:
    lines = b"".join(b"key-%d:%d\n" % (number, number) for number in range(50))
    succeeds(endpoint, "append", channel, "--key-delim", ":", "--partitioner", "murmur2", stdin=lines)

    shown = records(succeeds(endpoint, "scan", channel, "-o", "jsonl"))

    chosen = tidelog.partition_keys([message["key"].encode() for message in shown], 2, "murmur2")
    assert [message["vchannel"] for message in shown] == [f"{channel}/{index}" for index in chosen]


def test_an_append_expects_the_last_tick(endpoint: str, channel: str) -> None:
    [first] = records(succeeds(endpoint, "append", f"{channel}/0", "--expect-last-tick", "0", stdin=b"a\nb\n"))
    tick = str(first["last_tick"])

    refused(endpoint, ExitCode.CONFLICT, "append", f"{channel}/0", "--expect-last-tick", "0", stdin=b"late\n")
    succeeds(endpoint, "append", f"{channel}/0", "--expect-last-tick", tick, stdin=b"c\n")

    assert [each["payload"] for each in records(succeeds(endpoint, "scan", channel, "-o", "jsonl"))] == ["a", "b", "c"]
    several = refused(endpoint, ExitCode.USAGE, "append", channel, "--expect-last-tick", tick, stdin=b"d\n")
    assert "expected_last_tick is the tick of one vchannel" in several


def test_headers_are_properties_of_messages_that_lack_them(endpoint: str, channel: str) -> None:
    lines = b'{"payload": "a"}\n{"payload": "b", "properties": {"source": "own", "more": "x"}}\n'
    headers = ("-H", "source=till-3", "--header", "note=a=b")

    succeeds(endpoint, "append", f"{channel}/0", "--framing", "jsonl", *headers, stdin=lines)

    shown = records(succeeds(endpoint, "scan", channel, "-o", "jsonl"))
    assert [message["properties"] for message in shown] == [
        {"source": "till-3", "note": "a=b"}, {"source": "own", "note": "a=b", "more": "x"},
    ]  # fmt: skip
    wrong = refused(endpoint, ExitCode.USAGE, "append", f"{channel}/0", "-H", "nothing", stdin=b"x\n")
    assert "invalid -H 'nothing': expected NAME=VALUE" in wrong


def test_an_existing_channel_may_have_any_number_of_vchannels(endpoint: str, channel: str) -> None:
    [found] = records(succeeds(endpoint, "channel", "create", channel, "--if-not-exists"))
    assert found["vchannels"] == 2
    succeeds(endpoint, "channel", "create", channel, "--if-not-exists", "--vchannels", "2")
    refused(endpoint, ExitCode.CONFLICT, "channel", "create", channel, "--if-not-exists", "--vchannels", "3")
    [made] = records(succeeds(endpoint, "channel", "create", f"{channel}-new", "--if-not-exists"))
    assert made["vchannels"] == 1
