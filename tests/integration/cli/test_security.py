"""``tidelog token`` and ``tidelog audit``: they work, and no secret leaks.

Method: a server process with TLS and authentication, and commands in separate processes with credentials from options
and environment. Then everything that the server wrote is searched for secrets.
"""

import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tidelog import Client, TlsOptions, UnavailableError
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.certificates import Authority
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.processes import ServerProcess

CANARY = b"canary-4b1d-payload"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.make(tmp_path)


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> Iterator[ServerProcess]:
    files = {name.replace("__", "."): path for name, path in authority.server().items()}
    settings = {"auth.kind": "on", "log.level": "debug", "quota.auth_failures_per_minute": 1_000, **files}
    with ServerProcess(tmp_path / "data", settings) as server:
        yield server


def tidelog(
    server: ServerProcess, authority: Authority, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command that trusts ``authority``."""
    variables = {"TIDELOG_ENDPOINT": server.grpc, "TIDELOG_TLS_CA": str(authority.ca), **(env or {})}
    done = run_command(arguments, environment=variables)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_tokens_are_made_shown_once_used_and_revoked(
    server: ServerProcess, authority: Authority, tmp_path: Path
) -> None:
    first = tmp_path / "data" / "bootstrap-token"
    admin, writer = tmp_path / "admin.token", tmp_path / "writer.token"
    secrets = [first.read_text().strip()]
    grants = ["-a", "admin.write", "-a", "admin.read", "-a", "channel.create:*"]
    made = tidelog(
        server, authority, "--token-file", str(first), "token", "create", "administrator", *grants, "-o", "text"
    )
    assert made.returncode == 0, made.stderr
    admin.write_text(made.stdout)
    assert not first.exists()
    by_admin = {"TIDELOG_TOKEN_FILE": str(admin)}
    made = tidelog(server, authority, "token", "create", "a writer", "-a", "append:orders", "-o", "jsonl", env=by_admin)
    row = json.loads(made.stdout)
    writer.write_text(row["token"])
    secrets += [admin.read_text().strip(), row["token"]]
    assert row["grants"] == ["append:orders"]
    assert tidelog(server, authority, "channel", "create", "orders", env=by_admin).returncode == 0
    by_writer = {"TIDELOG_TOKEN": row["token"]}
    assert tidelog(server, authority, "channel", "create", "more", env=by_writer).returncode == ExitCode.DENIED
    assert tidelog(server, authority, "channel", "ls").returncode == ExitCode.DENIED
    with Client(server.grpc, tls=TlsOptions(authority.ca), token=row["token"]) as client:
        client.append("orders", CANARY)
    listed = tidelog(server, authority, "token", "ls", env=by_admin)
    assert [json.loads(line)["description"] for line in listed.stdout.splitlines()].count("a writer") == 1
    assert not any(secret in listed.stdout for secret in secrets)
    revoked = tidelog(server, authority, "token", "revoke", row["token_id"], env=by_admin)
    assert json.loads(revoked.stdout)["revoked"]
    assert tidelog(server, authority, "channel", "ls", env=by_writer).returncode == ExitCode.DENIED
    # The token instead of its id is a usage error, and must not be logged.
    assert tidelog(server, authority, "token", "revoke", row["token"], env=by_admin).returncode == ExitCode.USAGE
    assert tidelog(server, authority, "token", "revoke", "0" * 12, env=by_admin).returncode == ExitCode.NOT_FOUND
    whole = tidelog(server, authority, "audit", "verify", env=by_admin)
    assert json.loads(whole.stdout)["is_whole"], whole.stderr
    events = tidelog(server, authority, "audit", "ls", env=by_admin)
    # A token is its id, which may be logged, followed by the secret.
    planted = [secret.rpartition("_")[2] if secret.count("_") == 2 else secret[17:] for secret in secrets]
    for secret in [*planted, CANARY.decode()]:
        assert secret not in events.stdout + server.errors
    server.terminate()
    assert server.wait() == 0
    private = authority.folder.joinpath("server.key").read_text().splitlines()[1]
    assert private not in server.errors
    for path in sorted((tmp_path / "data").rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            assert not any(secret.encode() in content for secret in planted), path
            if path.parent.name != "db":
                assert CANARY not in content, path


def test_a_command_says_what_is_missing(server: ServerProcess, authority: Authority) -> None:
    no_token = tidelog(server, authority, "token", "ls")
    assert no_token.returncode == ExitCode.DENIED
    assert "no valid credentials" in no_token.stderr
    half = tidelog(server, authority, "--tls-cert", "a.pem", "token", "ls")
    assert half.returncode == ExitCode.USAGE
    plain = {"TIDELOG_TLS_CA": "", "TIDELOG_TOKEN": "x"}
    away = tidelog(server, authority, "token", "ls", "--endpoint", "example.org:1", env=plain)
    assert away.returncode == ExitCode.USAGE
    assert "refusing to send a token unencrypted" in away.stderr
    bad = tidelog(server, authority, "token", "create", "x", "-a", "append")
    assert bad.returncode == ExitCode.DENIED
    long = tidelog(server, authority, "token", "create", "x", "-a", "read:*", "--lifetime", "1y")
    assert long.returncode == ExitCode.USAGE


def test_the_advice_beside_the_first_token_works_as_written(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", {"auth.kind": "on", "log.format": "json"}) as server:
        [event] = [
            json.loads(line) for line in server.errors.splitlines() if '"event": "bootstrap_token_written"' in line
        ]
        program, *arguments = shlex.split(event["advice"].partition(": ")[2])
        assert program == "tidelog"
        assert arguments[-2:] == [">", "admin.token"]
        made = run_command(arguments[:-2], environment={"TIDELOG_ENDPOINT": server.grpc})
        assert made.returncode == 0, made.stderr
        token = made.stdout.decode().strip()
        listed = run_command(["token", "ls"], environment={"TIDELOG_ENDPOINT": server.grpc, "TIDELOG_TOKEN": token})
        assert listed.returncode == 0, listed.stderr


def test_a_client_that_lacks_tls_or_has_too_much_of_it_is_told_which(
    server: ServerProcess, authority: Authority, tmp_path: Path
) -> None:
    def refusal(endpoint: str, ca: Path | None) -> str:
        tls = TlsOptions(ca) if ca else None
        with Client(endpoint, tls=tls, connect_timeout_s=0.5) as client, pytest.raises(UnavailableError) as refused:
            client.wal_name()
        return str(refused.value)

    (tmp_path / "other").mkdir()
    other = Authority.make(tmp_path / "other")
    assert "speaks TLS" in refusal(server.grpc, None)
    assert "--tls-ca" in refusal(server.grpc, None)
    assert "does not accept the server's certificate" in refusal(server.grpc, other.ca)
    with ServerProcess(tmp_path / "plain") as plain:
        assert "does not speak TLS" in refusal(plain.grpc, authority.ca)


def test_a_call_that_any_of_several_permissions_would_allow_names_them_all(
    server: ServerProcess, authority: Authority, tmp_path: Path
) -> None:
    first = {"TIDELOG_TOKEN_FILE": str(tmp_path / "data" / "bootstrap-token")}
    made = tidelog(server, authority, "token", "create", "x", "-a", "read:other", "-o", "text", env=first)
    assert made.returncode == 0, made.stderr

    denied = tidelog(server, authority, "scan", "orders", env={"TIDELOG_TOKEN": made.stdout.strip()})

    assert denied.returncode == ExitCode.DENIED
    assert "one of the permissions append, " in denied.stderr
    assert "read" in denied.stderr


def test_a_command_warns_of_a_token_file_that_others_can_read(
    server: ServerProcess, authority: Authority, tmp_path: Path
) -> None:
    first = tmp_path / "data" / "bootstrap-token"
    command = ("--token-file", str(first), "token", "ls")
    assert tidelog(server, authority, *command).stderr == ""
    first.chmod(0o644)
    warned = tidelog(server, authority, *command)
    assert (warned.returncode, warned.stderr.count("\n")) == (0, 1)
    assert f"{first} has mode 0644" in warned.stderr


def test_old_audit_events_are_trimmed_by_an_administrator_who_says_yes(
    server: ServerProcess, authority: Authority, tmp_path: Path
) -> None:
    first = tmp_path / "data" / "bootstrap-token"
    by_first = ("--token-file", str(first))
    for number in range(3):
        made = tidelog(server, authority, *by_first, "token", "create", f"reader {number}", "-a", "read:*")
        assert made.returncode == 0, made.stderr
    trim = (*by_first, "audit", "trim", "--before", "@-0s")
    asked = tidelog(server, authority, *trim)
    assert (asked.returncode, "--yes" in asked.stderr) == (ExitCode.USAGE, True)

    done = tidelog(server, authority, *trim, "--yes")

    assert done.returncode == 0, done.stderr
    verified = tidelog(server, authority, *by_first, "audit", "verify", "-o", "jsonl")
    assert json.loads(verified.stdout) == {"events": 1, "is_whole": True}
    listed = tidelog(server, authority, *by_first, "audit", "ls", "-o", "jsonl")
    assert json.loads(listed.stdout)["method"].endswith("/Trim")
