"""``tidelog group``. Method: commands in this process, against a real server.

One command runs in a separate process, to test how the entry point reports an error.
"""

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidelog import Client, Tick
from tidelog.testing import start_server
from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.root import app
from tidelog_testing.servers.commands import COMMAND, records


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with start_server() as running:
        yield running.endpoint


@pytest.fixture
def client(endpoint: str) -> Iterator[Client]:
    with Client(endpoint) as client:
        yield client


@pytest.fixture
def channel(client: Client) -> str:
    return client.create_channel(f"c-{uuid.uuid4().hex[:8]}", vchannels=2).name


@pytest.fixture
def ticks(client: Client, channel: str) -> list[Tick]:
    """Five messages on the first vchannel."""
    result = client.append(f"{channel}/0", [b"a", b"b", b"c", b"d", b"e"])
    return [Tick(result.first_tick + index) for index in range(5)]


@pytest.fixture
def group(client: Client, channel: str) -> str:
    """A group that has consumed nothing."""
    return client.create_group(f"g-{uuid.uuid4().hex[:8]}", channel).name


def run(endpoint: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["group", *arguments], env={"TIDELOG_ENDPOINT": endpoint, "COLUMNS": "200"})


def succeeds(endpoint: str, *arguments: str) -> str:
    done = run(endpoint, *arguments)
    assert done.exit_code == ExitCode.OK, done.exception
    return done.stdout


def refused(endpoint: str, code: ExitCode, *arguments: str) -> str:
    done = run(endpoint, *arguments)
    assert isinstance(done.exception, CommandError), done.exception
    assert done.exception.code is code
    return done.exception.message


def test_a_group_is_created_listed_and_removed(endpoint: str, channel: str, ticks: list[Tick]) -> None:
    name = f"g-{uuid.uuid4().hex[:8]}"

    [created] = records(succeeds(endpoint, "create", name, channel, "--start", "latest"))

    assert (created["name"], created["vchannels"]) == (name, [f"{channel}/0", f"{channel}/1"])
    [described] = records(succeeds(endpoint, "describe", name))
    assert int(described["positions"][0]["next_tick"]) > ticks[-1]
    assert "exists" in refused(endpoint, ExitCode.CONFLICT, "create", name)
    [listed] = records(succeeds(endpoint, "ls", "--channel", channel))
    assert (listed["name"], listed["vchannels"], listed["members"]) == (name, 2, 0)
    assert listed["last_commit"].endswith("Z")
    assert succeeds(endpoint, "ls", name, "--names") == f"{name}\n"
    succeeds(endpoint, "rm", name, "--yes")
    assert name in refused(endpoint, ExitCode.NOT_FOUND, "rm", name, "--yes")
    assert f"no such group: {name}" in run(endpoint, "rm", name, "--yes", "--ignore-missing").stderr


def test_a_pattern_stands_for_the_groups_that_match(endpoint: str, client: Client, channel: str) -> None:
    stem = f"G{uuid.uuid4().hex[:8]}"
    for name in (f"{stem}.a", f"{stem}.b", f"{stem}x"):
        client.create_group(name, channel)

    assert succeeds(endpoint, "ls", f"{stem}.*", "--names").split() == [f"{stem}.a", f"{stem}.b"]
    described = records(succeeds(endpoint, "describe", f"{stem}x", f"{stem}?*"))
    assert [each["name"] for each in described] == [f"{stem}x", f"{stem}.a", f"{stem}.b"]
    assert f"no group matches the pattern '{stem}-*'" in refused(endpoint, ExitCode.NOT_FOUND, "describe", f"{stem}-*")
    assert "is not a pattern of groups" in refused(endpoint, ExitCode.USAGE, "ls", f"{stem}*|x")


def test_a_description_has_lag_members_and_what_was_trimmed(
    endpoint: str, client: Client, channel: str, group: str, ticks: list[Tick]
) -> None:
    client.trim(f"{channel}/0", before=ticks[1])
    with client.consumer(group, channel, member_id="m-1", description="tests", auto_commit=False):
        [described] = records(succeeds(endpoint, "describe", group))
        table = succeeds(endpoint, "describe", group, "-o", "table")
        text = succeeds(endpoint, "describe", group, "-o", "text")

    first, second = described["positions"]
    assert (first["vchannel"], first["lag_messages"], first["trimmed"], first["member"]) == (
        f"{channel}/0", 4, True, "m-1",
    )  # fmt: skip
    assert (second["lag_messages"], second["lag_s"], second["trimmed"]) == (0, 0.0, False)
    assert described["lag_messages"] == 4
    assert first["lag_bytes"] > 0
    [member] = described["members"]
    assert (member["member"], member["description"]) == ("m-1", "tests")
    assert member["vchannels"] == [f"{channel}/0", f"{channel}/1"]
    assert f"{group}: positions" in table
    assert f"{group}: members" in table
    assert "tests" in table
    assert len(text.splitlines()) == 2


def test_a_seek_moves_some_vchannels_or_all(
    endpoint: str, client: Client, channel: str, group: str, ticks: list[Tick]
) -> None:
    one = ("seek", group, "--vchannel", f"{channel}/0", "--to")

    def payloads() -> list[bytes]:
        return [message.payload for message in client.consume(group, f"{channel}/0").messages]

    assert records(succeeds(endpoint, *one, f"tick:{ticks[3]}")) == [
        {"group": group, "vchannel": f"{channel}/0", "next_tick": str(ticks[3])}
    ]
    assert payloads() == [b"d", b"e"]
    succeeds(endpoint, *one, f"id:{ticks[1].message_id.hex()}")
    assert payloads() == [b"b", b"c", b"d", b"e"]
    assert len(records(succeeds(endpoint, "seek", group, "--to", "latest"))) == 2
    assert payloads() == []
    succeeds(endpoint, *one, "-1h")
    assert len(payloads()) == 5


def test_a_peek_shows_what_comes_next_on_each_vchannel_and_moves_nothing(
    endpoint: str, client: Client, channel: str, group: str, ticks: list[Tick]
) -> None:
    client.append(f"{channel}/1", [b"x", b"y"])
    succeeds(endpoint, "seek", group, "--vchannel", f"{channel}/0", "--to", f"{ticks[1]}")

    def peeked(*arguments: str) -> list[tuple[str, str]]:
        return [(row["vchannel"], row["payload"]) for row in records(succeeds(endpoint, "peek", group, *arguments))]

    expected = [(f"{channel}/0", "b"), (f"{channel}/0", "c"), (f"{channel}/1", "x"), (f"{channel}/1", "y")]
    assert peeked("--max", "2") == expected
    assert peeked("--max", "2") == expected
    assert len(peeked()) == 6
    assert succeeds(endpoint, "peek", group, "-n", "1", "-o", "text") == "b\nx\n"
    assert client.describe_group(group).positions[f"{channel}/0"].next_tick == ticks[1]
    client.trim(f"{channel}/0", before=ticks[3])
    done = run(endpoint, "peek", group)
    assert [row["payload"] for row in records(done.stdout)] == ["x", "y"]
    assert f"tidelog group seek {group} --to earliest --vchannel {channel}/0" in done.stderr
    assert "unknown-group" in refused(endpoint, ExitCode.NOT_FOUND, "peek", "unknown-group")


def test_imported_positions_are_those_that_were_exported(
    endpoint: str, client: Client, channel: str, group: str, ticks: list[Tick], tmp_path: Path
) -> None:
    client.append(f"{channel}/1", [b"x", b"y"])
    file = tmp_path / "positions.json"

    def consumed() -> list[bytes]:
        pages = [client.consume(group, f"{channel}/{index}", commit=True) for index in range(2)]
        return [message.payload for page in pages for message in page.messages]

    client.seek_group(group, ticks[2], f"{channel}/0")
    exported = succeeds(endpoint, "export", group)
    assert json.loads(exported) == {
        "group": group, "positions": {f"{channel}/0": str(ticks[2]), f"{channel}/1": "0"}
    }  # fmt: skip
    assert succeeds(endpoint, "export", group, "--to-file", str(file)) == ""
    assert file.read_text() == exported
    messages = consumed()
    assert messages == [b"c", b"d", b"e", b"x", b"y"]
    assert consumed() == []
    rows = records(succeeds(endpoint, "import", group, str(file)))
    assert [(row["vchannel"], row["next_tick"]) for row in rows] == [
        (f"{channel}/0", str(ticks[2])), (f"{channel}/1", "1"),
    ]  # fmt: skip
    assert consumed() == messages
    assert CliRunner().invoke(
        app, ["group", "import", group, "-"], input=exported, env={"TIDELOG_ENDPOINT": endpoint}
    ).exit_code == ExitCode.OK  # fmt: skip
    assert consumed() == messages


def test_an_import_sets_all_positions_or_none(
    endpoint: str, client: Client, channel: str, group: str, ticks: list[Tick], tmp_path: Path
) -> None:
    file = tmp_path / "positions.json"

    def refusal(code: ExitCode, content: object) -> str:
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return refused(endpoint, code, "import", group, str(file))

    other = client.create_channel(f"{channel}-other").name
    moved, lacking = {f"{channel}/0": str(ticks[4])}, {f"{other}/0": "0"}
    assert f"tidelog group create {group} {other} --if-not-exists" in refusal(
        ExitCode.CONFLICT, {"positions": moved | lacking}
    )
    assert "does not exist" in refusal(ExitCode.NOT_FOUND, {"positions": moved | {f"{channel}-none/0": "0"}})
    beyond = {f"{channel}/1": str(Tick(1 << 62))}
    assert "above the latest tick" in refusal(ExitCode.CONFLICT, {"positions": moved | beyond})
    wrong: list[object] = [{"positions": [1]}, {"positions": {f"{channel}/0": "noon"}}, {"positions": {}}]
    for content in ("", "[]", "{}", *wrong):
        assert "positions" in refusal(ExitCode.USAGE, content)
    assert "no-such-file" in refused(endpoint, ExitCode.NOT_FOUND, "import", group, "no-such-file")
    assert client.describe_group(group).lag_messages == len(ticks)


def test_a_seek_to_nowhere_is_refused_and_says_what_there_is(
    endpoint: str, client: Client, channel: str, group: str, ticks: list[Tick]
) -> None:
    client.trim(f"{channel}/0", before=ticks[2])

    assert "trimmed" in refused(endpoint, ExitCode.CONFLICT, "seek", group, "--to", f"{ticks[0]}")
    assert "earliest, latest" in refused(endpoint, ExitCode.USAGE, "seek", group, "--to", "noon")
    assert "unknown-group" in refused(endpoint, ExitCode.NOT_FOUND, "seek", "unknown-group", "--to", "latest")
    assert "nothing" in refused(endpoint, ExitCode.NOT_FOUND, "seek", group, "-v", "nothing", "--to", "latest")


def test_a_reset_asks_first_and_begins_anew(
    endpoint: str, client: Client, channel: str, group: str, ticks: list[Tick]
) -> None:
    client.consume(group, f"{channel}/0", commit=True)

    assert "--yes" in refused(endpoint, ExitCode.USAGE, "reset", group)
    assert client.describe_group(group).lag_messages == 0
    succeeds(endpoint, "reset", group, "--yes")
    assert client.describe_group(group).lag_messages == len(ticks)
    succeeds(endpoint, "reset", group, "--to", "latest", "--vchannel", channel, "--yes")
    assert client.describe_group(group).lag_messages == 0


def test_a_group_with_members_is_removed_by_force_only(endpoint: str, client: Client, channel: str, group: str) -> None:
    with client.consumer(group, channel, auto_commit=False):
        assert "member" in refused(endpoint, ExitCode.CONFLICT, "rm", group, "--yes")
        assert "--yes" in refused(endpoint, ExitCode.USAGE, "rm", group)
        succeeds(endpoint, "rm", group, "--yes", "--force")

    assert list(client.list_groups(group)) == []


def test_an_error_is_a_line_and_an_exit_code(endpoint: str) -> None:
    done = subprocess.run(
        [*COMMAND, "group", "describe", "unknown-group"], capture_output=True, text=True, timeout=240, check=False,
        env=child_environment() | {"TIDELOG_ENDPOINT": endpoint},
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (ExitCode.NOT_FOUND, "")
    assert done.stderr.startswith("tidelog: ")
    assert "unknown-group" in done.stderr
