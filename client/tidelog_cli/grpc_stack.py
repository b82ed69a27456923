"""Selects gRPC's network stack for all processes of the command line, including the server.

gRPC's newer stack (EventEngine) passes each message through two more threads than the older one, which costs a third of
a round trip on two cores. A process can select the stack until it first uses gRPC. The client package ``tidelog`` does
not: a library may not choose for its process.

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
    """Select the older stack for this process and its children, unless the variable is already set."""
    os.environ.setdefault(VARIABLE, POLLING_STACK)


def log_errors_only() -> None:
    """Make gRPC itself log only errors on stderr, unless the variable is already set.

    Why: by default it logs each failed handshake, so any unauthenticated client could flood the log.
    """
    os.environ.setdefault(VERBOSITY_VARIABLE, _ERRORS)


def without_choice(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` without the selection, for a process that uses gRPC's default stack."""
    return {name: value for name, value in environment.items() if name != VARIABLE}
