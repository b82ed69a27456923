"""``tidelog journal``: apply, list, append, read and remove, with the bytes of frames unchanged.

Method: one real server for the module, and each command in a separate process, without a terminal.
"""

import json
from pathlib import Path

import pytest

from tidelog.gazette import FIXED_FRAME_WORD
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import Commands, records, run_command

COMMANDS = Commands("journal")
succeeds, refused = COMMANDS.succeeds, COMMANDS.refused

LINES = b'{"n":1}\n{"n": 2, "text":"\xc3\xa9"}\n' + b"".join(b'{"n":%d}\n' % number for number in range(3, 2_500))
FIXED = b"".join(
    FIXED_FRAME_WORD + len(body).to_bytes(4, "little") + body for body in (b"", b"\x00\n\xff", b"x" * 100_000, b"\n")
)


def test_journals_are_applied_listed_and_removed(endpoint: str, path: str, tmp_path: Path) -> None:
    first, second = f"{path}/part-000", f"{path}/part-001"
    created = records(succeeds(endpoint, "apply", first, second, "-l", "topic=a", "-l", "content-type=text/csv"))
    assert [each["name"] for each in created] == [first, second]
    assert created[0]["labels"] == ["content-type=text/csv", "topic=a"]
    assert records(succeeds(endpoint, "ls", f"prefix={path}/")) == created
    assert succeeds(endpoint, "ls", f"prefix={path}/, topic=b", "--names") == b""

    specs = tmp_path / "specs.jsonl"
    specs.write_text("\n".join(json.dumps({**each, "labels": ["topic=b"]}) for each in created))
    altered = records(succeeds(endpoint, "apply", "--specs", str(specs)))
    assert [each["channel"] for each in altered] == [each["channel"] for each in created]
    assert succeeds(endpoint, "ls", f"topic=b, prefix={path}/", "-n").decode().split() == [first, second]
    assert "expected revision" in refused(endpoint, ExitCode.CONFLICT, "apply", "--specs", str(specs))

    assert "--yes" in refused(endpoint, ExitCode.USAGE, "rm", first)
    assert "does not exist" in refused(endpoint, ExitCode.NOT_FOUND, "rm", first, f"{path}/other", "--yes")
    succeeds(endpoint, "rm", first, f"{path}/other", "--ignore-missing", "--yes")
    specs.write_text(json.dumps({"name": second, "delete": True}))
    assert succeeds(endpoint, "apply", "--specs", str(specs)) == b""
    assert succeeds(endpoint, "ls", f"prefix={path}/") == b""


@pytest.mark.parametrize(
    ("content_type", "stream", "frames"),
    [
        ("application/x-ndjson", LINES, 2_499),
        ("text/csv", b'1,"a\nb",c\n2,"",d\n', 2),
        ("application/x-protobuf-fixed", FIXED, 4),
    ],
)
def test_a_stream_is_imported_and_exported_byte_for_byte(
    endpoint: str, path: str, tmp_path: Path, content_type: str, stream: bytes, frames: int
) -> None:
    source, copy = f"{path}/source", f"{path}/copy"
    succeeds(endpoint, "apply", source, copy, "-l", f"content-type={content_type}")
    file = tmp_path / "stream"
    file.write_bytes(stream)
    (appended,) = records(succeeds(endpoint, "append", source, "-i", str(file)))
    assert (appended["journal"], appended["messages"], appended["bytes"]) == (source, frames, len(stream))
    exported = succeeds(endpoint, "read", source, "--raw")
    assert exported == stream
    succeeds(endpoint, "append", copy, stdin=exported)
    assert succeeds(endpoint, "read", copy, "--raw") == stream
    first, *rest = records(succeeds(endpoint, "read", copy))
    assert len(rest) == frames - 1
    assert records(succeeds(endpoint, "read", copy, "-n", "1")) == [first]
    assert succeeds(endpoint, "read", copy, "--raw", "--from", str(int(first["tick"]) + 1)) != stream


def test_the_framing_of_the_input_can_be_given(endpoint: str, path: str) -> None:
    name = f"{path}/plain"
    succeeds(endpoint, "apply", name)
    assert "--framing" in refused(endpoint, ExitCode.USAGE, "append", name, stdin=b"x\n")
    assert "unrecognized content-type" in refused(endpoint, ExitCode.USAGE, "append", name, "--framing", "text/x")
    (appended,) = records(succeeds(endpoint, "append", name, "--framing", "ndjson", stdin=b"1\n2\n"))
    assert appended["messages"] == 2
    (appended,) = records(succeeds(endpoint, "append", name, "--framing", "none", stdin=b"3\n4"))
    assert appended["messages"] == 1
    assert succeeds(endpoint, "read", name, "--raw") == b"1\n2\n3\n4"


def test_input_that_is_no_stream_of_frames_is_refused_after_its_frames(endpoint: str, path: str) -> None:
    name = f"{path}/broken"
    succeeds(endpoint, "apply", name, "-l", "content-type=application/x-protobuf-fixed")
    told = refused(endpoint, ExitCode.USAGE, "append", name, stdin=FIXED + b"garbage and more of it")
    assert "after frame 4 (detected de-synchronization)" in told
    told = refused(endpoint, ExitCode.USAGE, "append", name, "--framing", "ndjson", stdin=b"1\n2")
    assert "after frame 1 (unexpected EOF)" in told


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("ls", "topic=b,,"), ExitCode.USAGE, "selector is invalid"),
        (("apply",), ExitCode.USAGE, "--specs"),
        (("apply", "a//b/c"), ExitCode.USAGE, "clean relative path"),
        (("apply", "a/b/c", "-l", "topic"), ExitCode.USAGE, "NAME=VALUE"),
        (("apply", "--specs", "/nowhere"), ExitCode.NOT_FOUND, "cannot read"),
        (("apply", "a/b/c", "--expected-revision", "7"), ExitCode.CONFLICT, "does not exist"),
        (("append", "a/b/none"), ExitCode.NOT_FOUND, "does not exist"),
        (("read", "a/b/none"), ExitCode.NOT_FOUND, "does not exist"),
        (("read", "a/b/c", "--raw", "-o", "json"), ExitCode.USAGE, "use one of them"),
        (("read", "a/b/c", "-f", "--to", "5"), ExitCode.USAGE, "use one of them"),
    ],
)
def test_wrong_arguments_are_refused(endpoint: str, arguments: tuple[str, ...], code: ExitCode, problem: str) -> None:
    assert problem in refused(endpoint, code, *arguments)


def test_lines_that_are_no_specifications_are_refused(endpoint: str, tmp_path: Path) -> None:
    specs = tmp_path / "specs.jsonl"
    for line in ("{", "[]", "{}", '{"name":"a/b/c","revision":"x"}'):
        specs.write_text(f"\n{line}\n")
        assert "line 2 of" in refused(endpoint, ExitCode.USAGE, "apply", "--specs", str(specs))


def test_channels_of_journals_are_listed_with_all_only(endpoint: str, path: str) -> None:
    (created,) = records(succeeds(endpoint, "apply", f"{path}/one"))
    environment = {"TIDELOG_ENDPOINT": endpoint}
    listed = run_command(("channel", "ls", "-n"), stdin=b"", environment=environment)
    assert listed.stdout == b""
    listed = run_command(("channel", "ls", "-n", "--all"), stdin=b"", environment=environment)
    assert created["channel"] in listed.stdout.decode().split()
