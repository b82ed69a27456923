"""``tidelog debug bundle`` has what a report needs, and no secret and no message.

Method: the command against a real server with authentication, with secrets planted in settings, URLs, files of tokens,
passwords, options and keys, variables, messages and a log; then each byte of the bundle.
"""

import json
import stat
import tarfile
from pathlib import Path

import pytest

from tidelog import Client, Message
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.certificates import Signer, self_signed
from tidelog_testing.servers.commands import records, run_command
from tidelog_testing.servers.processes import ServerProcess

PARTS = {"settings.jsonl", "versions.jsonl", "doctor.jsonl", "metrics.txt", "log.txt"}
SECRET = "pl4nted"


def content_of(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle) as archive:
        found = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            found[Path(entry.name).name] = file.read().decode()
    return found


@pytest.fixture
def planted(tmp_path: Path) -> dict[str, str]:
    """Write files with secrets, settings that name them and a log; return the secrets that have a form of their own."""
    cert, key = self_signed(tmp_path)
    for name in ("cluster-token", "etcd-password"):
        (tmp_path / name).write_text(f"{SECRET}-{name}\n")
    (tmp_path / "options").write_text(f'sasl.mechanism=PLAIN\nsasl.password={SECRET}-"options"\n')
    (tmp_path / "tidelog.toml").write_text(
        f'[tls]\ncert = "{cert}"\nkey = "{key}"\n'
        f'[tracing]\nendpoint = "https://me:{SECRET}-tracing@127.0.0.1:1/v1?key={SECRET}-query"\n'
        f'[engine]\nservice_url = "pulsar://{SECRET}-user:x@127.0.0.1:1"\noptions_file = "{tmp_path / "options"}"\n'
        f'[cluster]\ntoken_file = "{tmp_path / "cluster-token"}"\n'
        f'[metadata]\netcd_password_file = "{tmp_path / "etcd-password"}"\n'
    )  # fmt: skip
    signed = Signer().token()
    lines = [
        json.dumps({"event": "started", "note": f'{SECRET}-"options" of {SECRET}-cluster-token'}),
        json.dumps({"event": "call", "authorization": f"Bearer {SECRET}-bearer", "jwt": signed}),
        f"PASSWORD={SECRET}-log {SECRET}-etcd-password http://a:{SECRET}-b@c/d?e={SECRET}-f",
        json.dumps({"event": "key", "pem": key.read_text()}),
        "the last line stays",
    ]
    (tmp_path / "server.log").write_text("\n".join(lines) + "\n")
    body = "".join(line for line in key.read_text().splitlines() if not line.startswith("-"))
    return {"signed": signed, "key": body[:40], "pem": body[-24:]}


def test_a_bundle_has_what_a_report_needs_and_no_secret(tmp_path: Path, planted: dict[str, str]) -> None:
    bundle = tmp_path / "report.tar.gz"
    with ServerProcess(tmp_path / "log", {"auth.kind": "on"}) as server:
        first = (tmp_path / "log" / "bootstrap-token").read_text().strip()
        with Client(server.grpc, token=first) as client:
            grants = ["admin.read", "admin.write", "append:*", "channel.create:*", "mailbox.manage:*", "mailbox.send:*"]
            token = client.create_token("all", grants).token
        with Client(server.grpc, token=token) as client:
            client.create_channel("orders")
            client.append("orders", [Message(f"{SECRET}-payload".encode(), key=f"{SECRET}-key".encode())])
            client.mailboxes.create("jobs")
            client.mailbox("jobs").send(f"{SECRET}-body".encode())
        done = run_command(
            ["debug", "bundle", "-o", str(bundle), "-c", str(tmp_path / "tidelog.toml"),
             "--log", str(tmp_path / "server.log"), "--storage.data_dir", str(tmp_path / "log")],
            environment={
                "TIDELOG_ENDPOINT": server.grpc, "TIDELOG_TOKEN": token, "TIDELOG_PULSAR_TOKEN": f"{SECRET}-pulsar",
            },
        )  # fmt: skip
    assert done.returncode == ExitCode.OK, done.stderr
    assert done.stdout.decode() == f"{bundle}\n"
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    found = content_of(bundle)
    for secret in (SECRET, token, first, *planted.values()):
        assert [name for name, text in found.items() if secret in text] == [], secret
        assert secret.encode() not in done.stderr + done.stdout
    manifest = json.loads(found.pop("manifest.json"))
    assert (manifest["missing"], manifest["endpoint"]) == ({}, server.grpc)
    assert set(manifest["files"]) == set(found) == PARTS
    settings = {record["key"]: record for record in records(found["settings.jsonl"])}
    assert settings["tracing.endpoint"]["value"] == "https://********@127.0.0.1:1/v1?********"
    assert settings["cluster.token_file"]["value"] == str(tmp_path / "cluster-token")
    assert settings["storage.data_dir"]["origin"] == "flag --storage.data_dir"
    assert "tidelog_open_streams" in found["metrics.txt"]
    checks = {record["check"]: record["severity"] for record in records(found["doctor.jsonl"])}
    assert checks["server"] == "ok"
    assert found["log.txt"].endswith("\nthe last line stays\n")
    assert "tidelog" in records(found["versions.jsonl"])[0]


def test_what_is_missing_is_stated_with_the_reason(tmp_path: Path) -> None:
    bundle = tmp_path / "report.tar.gz"
    arguments = ["debug", "bundle", "-o", str(bundle), "--timeout", "0.5"]
    away = {"TIDELOG_ENDPOINT": "127.0.0.1:1", "PATH": str(tmp_path)}
    invalid = ["--tracing.endpoint", f"no://me:{SECRET}@host"]
    done = run_command([*arguments, *invalid], environment=away)
    assert done.returncode == ExitCode.OK, done.stderr
    found = content_of(bundle)
    missing = json.loads(found["manifest.json"])["missing"]
    assert set(found) == {"manifest.json", "versions.jsonl"}
    assert set(missing) == PARTS - set(found)
    assert "there is no journal here: pass the file as --log FILE" in missing["log.txt"]
    assert missing["settings.jsonl"].startswith("tracing.endpoint = 'no://********@host'")
    assert SECRET not in "".join(found.values()) + done.stderr.decode()
    again = run_command(arguments, environment=away)
    assert again.returncode == ExitCode.CONFLICT
    assert f"{bundle} exists" in again.stderr.decode()


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log, bundle = tmp_path / "server.log", tmp_path / "report.tar.gz"
    log.write_text("".join(f"line {number:>8}\n" for number in range(100_000)))
    done = run_command(
        ["debug", "bundle", "-o", str(bundle), "--log", str(log), "--timeout", "0.5"],
        environment={"TIDELOG_ENDPOINT": "127.0.0.1:1"},
    )
    assert done.returncode == ExitCode.OK, done.stderr
    lines = content_of(bundle)["log.txt"].splitlines()
    assert lines[-1] == "line    99999"
    assert 50_000 < len(lines) < 100_000
    assert {len(line) for line in lines} == {13}
