"""A real PostgreSQL from Debian's package, on a socket in a temporary folder, which its handle ends.

``initdb`` refuses root, so as root both programs run as the unprivileged user that the package creates.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psycopg

from tidelog_testing.parts.missing import missing
from tidelog_testing.servers.held import Held

_USER: Final = "postgres"
_START_WITHIN_S: Final = 120.0
WHY_NOT: Final = "PostgreSQL is not installed. On Debian and Ubuntu: apt-get install postgresql"


def programs() -> Path | None:
    """Return the folder of the newest installed PostgreSQL's programs, or None without an installation."""
    # Debian keeps the programs of each version in a folder of its own, which is not on the path.
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if folders:
        return folders[-1].parent
    found = shutil.which("initdb")
    return Path(found).parent if found else None


class PostgresProcess(Held):
    """One PostgreSQL server. The constructor returns once it answers; ``with`` ends it and deletes its files.

    Attributes:
        conninfo: Connection string of its only database.
        folder: Its data, log and socket, which belong to its user.
    """

    def __init__(self) -> None:
        found = programs()
        if found is None:
            missing(WHY_NOT)
        self._programs = found
        # Why not pytest's folder: another user cannot enter it, and the path of a socket has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="tidelog-postgres-"))
        # Arguments of Popen that give up root.
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(self.folder, _USER, _USER)
            self._as_user = {"user": _USER, "group": _USER, "extra_groups": []}
        self.conninfo = f"host={self.folder} user=tidelog dbname=postgres"
        data = self.folder / "data"
        self._run("initdb", "--pgdata", str(data), "--username", "tidelog", "--auth", "trust", "--no-instructions")
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [found / "postgres", "-D", data, "-k", self.folder, "-c", "listen_addresses="],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._as_user,
            )
        self._wait_until_it_answers()

    def kill(self) -> None:
        # SIGQUIT: an immediate shutdown, which ends the server's own processes too.
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(30)
        shutil.rmtree(self.folder)

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, commit it, and return its rows."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            capture_output=True,
            text=True,
            timeout=_START_WITHIN_S,
            check=False,
            cwd=self.folder,
            **self._as_user,
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _START_WITHIN_S
        while True:
            try:
                self.execute("SELECT 1")
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.05)
            else:
                return
