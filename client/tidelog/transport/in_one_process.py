"""Objects that belong to one process."""

from typing import NoReturn


class InOneProcess:
    """A client, or what it has made: it has connections and an event loop, which no other process can use."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied, as for a process that ``multiprocessing`` spawns.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"{type(self).__name__} cannot be handed to another process, nor copied: pass the endpoint and the "
            "options, and create the client in the process that uses it"
        )
