"""gRPC accepts the network stack that our processes select, and a selection by the user is not changed."""

import os
import subprocess
import sys

import pytest

from tidelog_cli.grpc_stack import POLLING_STACK, VARIABLE, use_polling_stack, without_choice

_USE_GRPC = "import grpc; grpc.insecure_channel('x').close()"


def words_of_grpc(choice: str) -> str:
    """Return the stderr of a process that starts gRPC with ``choice``."""
    environment = os.environ | {VARIABLE: choice}
    return subprocess.run(
        [sys.executable, "-c", _USE_GRPC], env=environment, capture_output=True, check=True, text=True
    ).stderr


def test_grpc_knows_what_we_choose() -> None:
    # A gRPC version that no longer supports the choice logs a warning; then the choice must be reconsidered.
    assert words_of_grpc(POLLING_STACK) == ""
    assert "unheard_of" in words_of_grpc("unheard_of")


def test_a_choice_that_was_made_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "mine")
    use_polling_stack()
    assert os.environ[VARIABLE] == "mine"


def test_the_choice_is_for_children_too_unless_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    use_polling_stack()
    assert os.environ[VARIABLE] == POLLING_STACK
    assert VARIABLE not in without_choice(os.environ)
