"""``tidelog serve --tls-self`` and ``--dev``: a certificate, settings for development, and what clients need."""

import os
import shlex
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_server.commands.error_codes import FOLDER_CODES
from tidelog_server.recordlog.kinds import ENGINE_KINDS
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.format.folder_errors import folder_error

if TYPE_CHECKING:
    from tidelog_server.config import Config

_FOLDER_SUFFIX: Final = "-tls"
_LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_FREE_PORTS: Final = {"server.grpc_port": "0", "server.http_port": "0"}


@dataclass(frozen=True, slots=True)
class Development:
    """What a server reports to a developer once it is ready.

    Attributes:
        authority: File of the authority that clients need; None without ``--tls-self``.
        remains: What remains of the data when the server stops, as a sentence; empty without ``--dev``.
    """

    authority: Path | None = None
    remains: str = ""

    def variables(self, grpc: str, http: str, data_dir: Path) -> dict[str, str]:
        """Return the variables with which commands and clients connect; empty without both options.

        Args:
            grpc: ``host:port`` that gRPC listens on.
            http: ``host:port`` that the HTTP server listens on.
            data_dir: Folder with the first token, if the server has written one.
        """
        from tidelog_server.security.bootstrap import FILE_NAME

        found: dict[str, str] = {}
        if self.authority is not None or self.remains:
            found["TIDELOG_ENDPOINT"] = _reached_at(grpc)
        if self.authority is not None:
            found["TIDELOG_TLS_CA"] = str(self.authority)
        if self.remains:
            found["TIDELOG_HTTP_ENDPOINT"] = _reached_at(http)
            token_file = data_dir / FILE_NAME
            if token_file.exists():
                found["TIDELOG_TOKEN_FILE"] = str(token_file)
        return found


def flags_for_development(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Return ``flags`` with the settings of ``--dev`` that no file, variable or flag gives.

    These are free ports, and a log in memory. A server to which a data folder is given keeps its log there; one to
    which only a log store is given has its files in ``folder``.

    Raises:
        CommandError: The configuration has unknown keys, or its file cannot be read.
    """
    from tidelog_server.config import ConfigError, assignments_of

    try:
        assigned = assignments_of(path, environ, flags)
    except ConfigError as error:
        raise CommandError(error.problems, ExitCode.BAD_CONFIG) from error
    defaults = {**_FREE_PORTS, "storage.data_dir": str(folder / "data")}
    if "storage.data_dir" not in assigned:
        defaults["storage.kind"] = "memory"
    return {**{key: value for key, value in defaults.items() if key not in assigned}, **flags}


def remains_of(config: "Config", folder: Path) -> str:
    """Return what remains of the data of a server with ``--dev``, as a sentence; its temporary folder is ``folder``."""
    storage = config.storage
    if storage.kind == "memory":
        return "All data is in memory, and is gone when the server stops."
    if (engine := ENGINE_KINDS.get(storage.kind)) is not None:
        return f"The log stays in {engine.system} when the server stops."
    if storage.data_dir.is_relative_to(folder):
        return f"All data is in {folder}, which is deleted when the server stops."
    return f"The data stays in {storage.data_dir} when the server stops."


def flags_with_certificate(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, str]:
    """Return ``flags`` with the certificate for development, which is made if it is missing or expires soon.

    Args:
        path: The configuration file; None without one.
        environ: The environment variables.
        flags: The flags, by ``section.name``.

    Raises:
        CommandError: The configuration is invalid, names files of TLS or has several nodes, or the folder is unusable.
    """
    from tidelog_server.commands import self_certificates
    from tidelog_server.config import ConfigError, assignments_of, load_config

    try:
        files = [item for key, item in assignments_of(path, environ, flags).items() if key.startswith("tls.")]
        if named := [item for item in files if item.value not in ("", "none")]:
            raise CommandError(
                f"--tls-self makes a certificate for development, and {named[0].origin} names a file of TLS: "
                "use one of them",
                ExitCode.BAD_CONFIG,
            )
        # Any files: a server of other machines has an invalid configuration without.
        config = load_config(path, environ, {**flags, "tls.cert": "self", "tls.key": "self"})
    except ConfigError as error:
        raise CommandError(error.problems, ExitCode.BAD_CONFIG) from error
    if config.metadata.kind == "etcd":
        raise CommandError(
            "--tls-self is for a single server: the nodes of a cluster need certificates of one authority, in tls.cert",
            ExitCode.BAD_CONFIG,
        )
    folder = Path(f"{os.path.abspath(config.storage.data_dir)}{_FOLDER_SUFFIX}")
    now = datetime.fromtimestamp(SystemClock().wall_ms() / 1_000, UTC)
    try:
        _check_owner(folder)
        self_certificates.ensure_certificates(folder, names_of(config), now)
    except OSError as error:
        problem = folder_error(folder, error)
        raise CommandError(str(problem), FOLDER_CODES[type(problem)]) from error
    files_of_server = {"tls.cert": self_certificates.SERVER, "tls.key": self_certificates.SERVER_KEY}
    return {**flags, **{key: str(folder / name) for key, name in files_of_server.items()}}


def names_of(config: "Config") -> list[str]:
    """Return the hosts by which clients reach a server of this machine."""
    from tidelog_server.config import is_unspecified

    hosts = (*_LOCAL_NAMES, socket.gethostname(), config.server.host, config.server.http_host)
    # Certificates have names in ASCII only.
    return list(dict.fromkeys(host for host in hosts if host and host.isascii() and not is_unspecified(host)))


def _check_owner(folder: Path) -> None:
    """Raise CommandError if another user can change what is in the folder, or has made it."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
        raise CommandError(
            f"{folder} is not a folder that only this user can write: others may know the keys in it. Remove it, and "
            "--tls-self makes it again",
            ExitCode.NO_PERMISSION,
        )


def authority_of(config: "Config") -> Path:
    """Return the file with the authority that clients need."""
    from tidelog_server.commands.self_certificates import AUTHORITY

    return Path(config.tls.cert).with_name(AUTHORITY)


def export_lines(variables: Mapping[str, str]) -> str:
    """Return the lines that set variables in a shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _reached_at(endpoint: str) -> str:
    """Return the address of this machine for a server that may listen on all addresses."""
    from tidelog_server.config import is_unspecified

    host, _, port = endpoint.rpartition(":")
    return f"localhost:{port}" if is_unspecified(host) else endpoint
