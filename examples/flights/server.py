"""The server of the demonstration: a separate process that can be killed without warning."""

from tidelog_server.commands.bench.server_process import ServerProcess


class MortalServer(ServerProcess):
    """A server process that ``kill`` kills, and ``start`` restarts with the same data on other ports."""

    def kill(self) -> None:
        """Kill the process with SIGKILL: it cannot write, sync or log anything more."""
        self.process.kill()
        self.process.wait()
        self._stopping.set()
        self._sampler.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
