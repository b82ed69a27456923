"""``tidelog debug bundle``: a file with what the report of a problem needs, without secrets and messages."""

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.json_text import json_text
from tidelog.transport.credentials import authorization
from tidelog_cli.commands.top import metrics_of
from tidelog_cli.commands.version import installed_versions
from tidelog_cli.connection import connected, run
from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.files import local_path, readable_file
from tidelog_cli.numbers import seconds
from tidelog_cli.options.target import NOT_GIVEN, EndpointOption, target_at, token_of
from tidelog_cli.output.escapes import say
from tidelog_cli.output.masks import Masks, is_secret_name, passwords_in
from tidelog_cli.output.records import Record, note
from tidelog_server.commands.config import setting_records
from tidelog_server.commands.config_flags import (
    SETTINGS_HELP,
    TAKES_SETTINGS,
    ConfigOption,
    effective_config,
    parse_settings,
)
from tidelog_server.commands.doctor import finding_records, findings_of
from tidelog_server.runtime.clock import SystemClock

if TYPE_CHECKING:
    from tidelog_server.config import Config

_LOG_BYTES: Final = 1 << 20
_LOG_LINES: Final = 5_000
_JOURNAL_WITHIN_S: Final = 20.0
_SECRET_BYTES: Final = 1 << 16
_UNIT: Final = "tidelog"
_TOKENS: Final = ("TIDELOG_TOKEN", "TIDELOG_PULSAR_TOKEN")
_ONLY_OWNER: Final = 0o600


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Gather what the report of a problem needs.")
    # With one command only, typer would drop its name.
    group.callback()(lambda: None)
    group.command(context_settings=TAKES_SETTINGS, epilog=f"{SETTINGS_HELP} {COMMON_CODES}")(bundle)
    app.add_typer(group, name="debug")


def bundle(
    context: typer.Context,
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=local_path,
            show_default=False,
            help="File to create, .tar.gz. Default: tidelog-debug-TIME.tar.gz, here.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", parser=local_path, help="File with the server's log. Default: the journal of the unit."),
    ] = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = NOT_GIVEN,
    timeout: Annotated[float, typer.Option(callback=seconds, help="Seconds to wait for each response.")] = 5.0,
) -> None:
    """Write settings, metrics, versions, what doctor finds and the end of the log into one file.

    Run it as the server is run: with its settings, and on its machine. Secrets are masked, and there are no messages;
    names of channels, groups and mailboxes may be there. What cannot be gathered is listed in the manifest with the
    reason.
    """  # fmt: skip
    now = datetime.fromtimestamp(SystemClock().wall_ms() / 1_000, UTC)
    path = file or Path(f"tidelog-debug-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    flags = parse_settings(context.args)
    masks = Masks.of(_secrets(lambda: effective_config(config, flags), endpoint))
    texts, missing = _gathered(
        {
            "settings.jsonl": lambda: _lines(setting_records(effective_config(config, flags))),
            "versions.jsonl": lambda: _lines([installed_versions()]),
            "doctor.jsonl": lambda: _lines(
                finding_records(findings_of(effective_config(config, flags), endpoint, timeout))
            ),
            "metrics.txt": lambda: run(_metrics(endpoint), timeout),
            "log.txt": lambda: _end_of_log(log),
        }
    )  # fmt: skip
    manifest = {
        "created": now.isoformat(timespec="seconds"), "files": sorted(texts), "missing": missing,
        "endpoint": _address(endpoint),
    }  # fmt: skip
    texts = {"manifest.json": json_text(manifest, indent=2) + "\n", **texts}
    _write(path, {name: masks.masked(text) for name, text in texts.items()}, int(now.timestamp()))
    for name, reason in missing.items():
        note(masks.masked(f"without {name}: {reason}"))
    note("read the file before you pass it on: names of channels, groups and mailboxes may be in it")
    say(str(path))


def _gathered(parts: Mapping[str, Callable[[], str]]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of the parts, and the reasons of those that are missing."""
    texts, missing = {}, {}
    for name, make in parts.items():
        try:
            texts[name] = make()
        except CommandError as error:
            missing[name] = error.message
        except OSError as error:
            missing[name] = str(error)
    return texts, missing


def _lines(records: Iterable[Record]) -> str:
    return "".join(f"{json_text(record)}\n" for record in records)


async def _metrics(endpoint: str) -> str:
    async with connected(endpoint, finds_owners=False) as client:
        return await metrics_of(client)


def _address(endpoint: str) -> str | None:
    with suppress(CommandError):
        return target_at(endpoint).endpoint
    return None


def _end_of_log(path: Path | None) -> str:
    """Return the last lines of a log.

    Raises:
        CommandError: There is no log.
    """
    if path is not None:
        with readable_file(path).open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES)
            file.seek(begin)
            content = file.read(_LOG_BYTES)
        # The part of a line could be that of a secret.
        whole = content.partition(b"\n")[2] if begin else content
        return whole.decode("utf-8", "replace")
    if (journalctl := shutil.which("journalctl")) is None:
        raise CommandError("the server logs on stderr, and there is no journal here: pass the file as --log FILE")
    command = [journalctl, f"--unit={_UNIT}", f"--lines={_LOG_LINES}", "--no-pager", "--quiet", "--output=short-iso"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_JOURNAL_WITHIN_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"journalctl did not end within {_JOURNAL_WITHIN_S:g} s: pass --log FILE") from error
    if done.returncode or not done.stdout.strip():
        told = done.stderr.decode("utf-8", "replace").strip() or "it has no entries"
        raise CommandError(f"no log of the unit {_UNIT} in the journal ({told}): pass the file as --log FILE")
    return done.stdout.decode("utf-8", "replace")


def _secrets(settings: "Callable[[], Config]", endpoint: str) -> Iterator[str]:
    """Yield the secrets that the parts could contain: those of variables, settings and the files that these name."""
    yield from (os.environ.get(name, "") for name in _TOKENS)
    yield _content(os.environ.get("TIDELOG_TOKEN_FILE", ""))
    with suppress(CommandError, OSError, ValueError):
        if (token := token_of(target_at(endpoint))) is not None:
            yield authorization(token)[1].partition(" ")[2]
    try:
        effective = settings()
    except CommandError:
        # The manifest has the reason, without passwords.
        return
    for text in effective.texts.values():
        yield from passwords_in(text)
    yield _content(effective.cluster.token_file)
    yield _content(effective.metadata.etcd_password_file).partition("\n")[0]
    yield _content(str(effective.storage.data_dir / "bootstrap-token"))
    for line in _content(effective.engine.options_file).splitlines():
        name, _, value = line.partition("=")
        if is_secret_name(name):
            yield value


def _content(path: str) -> str:
    """Return the begin of a file of credentials; empty without one, and if it cannot be read."""
    if path:
        with suppress(CommandError, OSError), readable_file(path).open("rb") as file:
            return file.read(_SECRET_BYTES).decode("utf-8", "replace")
    return ""


def _write(path: Path, texts: Mapping[str, str], time_s: int) -> None:
    """Create the file, which only its owner can read.

    Raises:
        CommandError: There is a file with this name.
    """
    folder = path.name.removesuffix(".tar.gz")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _ONLY_OWNER)
    except FileExistsError as error:
        raise CommandError(f"{path} exists: choose another name with -o", ExitCode.CONFLICT) from error
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in texts.items():
            content = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), time_s, _ONLY_OWNER
            archive.addfile(entry, io.BytesIO(content))
