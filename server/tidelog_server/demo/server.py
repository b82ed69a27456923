"""The server of the demonstration: a process of its own that can be killed as a power cut would."""

from tidelog_server.cli.bench.server_process import ServerProcess


class MortalServer(ServerProcess):
    """A server that ``kill`` ends without warning, and ``start`` brings back with the same data on other ports."""

    def kill(self) -> None:
        """End the process with SIGKILL: it gets no chance to write, sync or say anything."""
        self._process.kill()
        self._process.wait()
        self._stopping.set()
        self._sampler.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
