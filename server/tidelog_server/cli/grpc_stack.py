"""Which of the network stacks inside gRPC the processes of the command line run on, the server among them.

gRPC's newer stack (EventEngine) hands each message through two more threads than the older one, which costs a third of
a round trip on two cores. A process may choose until it first uses gRPC; a library may not choose for its process, so
``tidelog`` the client package does not.

Source: gRPC's environment variable GRPC_EXPERIMENTS, and its list of experiments as of 1.85.
"""

import os
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "GRPC_EXPERIMENTS"
POLLING_STACK: Final = "-event_engine_client,-event_engine_listener"
VERBOSITY_VARIABLE: Final = "GRPC_VERBOSITY"
_ERRORS: Final = "ERROR"


def use_polling_stack() -> None:
    """Choose the older stack for this process and its children, unless somebody chose already."""
    os.environ.setdefault(VARIABLE, POLLING_STACK)


def log_errors_only() -> None:
    """Have gRPC itself write only errors to stderr, unless a level was chosen already.

    Why: by default it writes a line for each handshake that fails, and any stranger can fail as many as he likes.
    """
    os.environ.setdefault(VERBOSITY_VARIABLE, _ERRORS)


def without_choice(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` for a process that shall use gRPC as it comes."""
    return {name: value for name, value in environment.items() if name != VARIABLE}
