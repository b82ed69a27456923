"""A real etcd on free loopback ports, in its own process, which its handle ends."""

import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import pytest

from tidelog_testing.parts.missing import missing
from tidelog_testing.servers.held import Held
from tidelog_testing.servers.ports import free_port

_START_WITHIN_S: Final = 240.0
WHY_NOT: Final = "etcd is not installed. On Debian and Ubuntu: apt-get install etcd-server etcd-client"

needs_etcd = pytest.mark.skipif(shutil.which("etcd") is None, reason=WHY_NOT)


class EtcdProcess(Held):
    """One etcd member. The constructor returns once it answers; ``with`` ends it by SIGKILL.

    Attributes:
        endpoint: ``host:port`` for clients; the same after a restart.
    """

    def __init__(
        self,
        folder: Path,
        *,
        options: tuple[str, ...] = (),
        tls: tuple[Path, Path, Path] | None = None,
        address: str = "",
    ) -> None:
        """Start etcd with its data in ``folder``.

        Args:
            folder: Its data folder; its output goes to ``<folder>.log`` next to it.
            options: Further options of etcd.
            address: Its address; by default on a free port.
            tls: Files of an authority, a certificate and its key: clients then need a certificate of the authority.
        """
        if shutil.which("etcd") is None:
            missing(WHY_NOT)
        self._folder = folder
        self._options = options
        self.tls = tls
        scheme = "https" if tls else "http"
        self.endpoint = address or f"127.0.0.1:{free_port()}"
        self._peer = f"http://127.0.0.1:{free_port()}"
        self._url = f"{scheme}://{self.endpoint}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        """Process id of the running member."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, on its previous address and data if it ran before; returns once it answers."""
        arguments = [
            "--name", "test", "--data-dir", str(self._folder), "--listen-client-urls", self._url,
            "--advertise-client-urls", self._url, "--listen-peer-urls", self._peer,
            "--initial-advertise-peer-urls", self._peer, "--initial-cluster", f"test={self._peer}",
            "--logger", "zap", "--log-outputs", str(self._folder.with_suffix(".log")), *self._options,
        ]  # fmt: skip
        if self.tls:
            authority, certificate, key = self.tls
            arguments += ["--cert-file", str(certificate), "--key-file", str(key)]
            arguments += ["--trusted-ca-file", str(authority), "--client-cert-auth"]
        # Makes elections fast, so that its shortest lease is short too.
        arguments += ["--heartbeat-interval", "50", "--election-timeout", "250"]
        self._process = subprocess.Popen(
            ["etcd", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "GOGC": "50"}
        )
        deadline = time.monotonic() + _START_WITHIN_S
        while not self._is_healthy():
            assert self._process.poll() is None, f"etcd ended with {self._process.returncode}"
            assert time.monotonic() < deadline, "etcd did not answer in time"
            time.sleep(0.02)

    def kill(self) -> None:
        """End it with SIGKILL and wait until it is gone. Idempotent."""
        if self._process is not None and self._process.poll() is None:
            # SIGKILL also ends a stopped process.
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def control(self, *arguments: str) -> str:
        """Run etcdctl on it and return the output."""
        tls: tuple[str, ...] = ()
        if self.tls:
            authority, certificate, key = self.tls
            tls = ("--cacert", str(authority), "--cert", str(certificate), "--key", str(key))
        done = subprocess.run(
            ["etcdctl", "--endpoints", self._url, *tls, *arguments],
            env={**os.environ, "ETCDCTL_API": "3"}, check=True, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        return done.stdout

    def _is_healthy(self) -> bool:
        context = None
        if self.tls:
            authority, certificate, key = self.tls
            context = ssl.create_default_context(cafile=str(authority))
            context.load_cert_chain(certificate, key)
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=1, context=context) as answer:
                return b'"true"' in answer.read()
        except (urllib.error.URLError, OSError):
            return False
