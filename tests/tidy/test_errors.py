"""Every domain error has exactly one status and one wire reason, and every reason belongs to an error of both sides.

Method: the classes of the server and of the client against the reasons of the protocol; and against `errors.json`, the
classes, parents, attributes, reasons and status codes of both sides when they were written in three tables. They may
be added to, and not change.

Promises of docs/reference/guarantees.md: G12.
"""

import importlib
import json
import pickle
import pkgutil
import re
from pathlib import Path
from typing import Any, Final

import pytest

import tidelog
import tidelog_server
from tidelog.errors import class_of_reason
from tidelog.v1 import error_pb2
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.rpc.status import code_of
from tidelog_testing.documents.exports import exported_names
from tidy.tree import ROOT

RECORDED: Final[dict[str, dict[str, Any]]] = json.loads(Path(__file__).with_name("errors.json").read_text())
SENT: Final = {name for name in error_pb2.Reason.keys() if name != "REASON_UNSPECIFIED"}  # noqa: SIM118 - no mapping


def descendants(kind: type[TidelogServerError]) -> set[type[TidelogServerError]]:
    children = set(kind.__subclasses__())
    return children.union(*(descendants(child) for child in children))


@pytest.fixture(scope="module")
def server_errors() -> dict[str, type[TidelogServerError]]:
    """Return the classes of the server by reason."""
    # A class is known once its module is imported.
    for module in pkgutil.walk_packages(tidelog_server.__path__, "tidelog_server."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    errors = descendants(TidelogServerError)
    by_reason = {f"REASON_{error.reason}": error for error in errors}
    assert len(by_reason) == len(errors), "two errors have one reason"
    return by_reason


def code_name(kind: type[TidelogServerError]) -> str:
    return str(code_of(kind.__new__(kind)).name)


def test_every_error_has_a_reason_and_every_reason_belongs_to_an_error(
    server_errors: dict[str, type[TidelogServerError]],
) -> None:
    assert set(server_errors) == SENT


def test_every_error_has_a_status(server_errors: dict[str, type[TidelogServerError]]) -> None:
    assert "OK" not in {code_name(error) for error in server_errors.values()}


@pytest.mark.parametrize("reason", sorted(RECORDED["reasons"]))
def test_a_reason_keeps_its_status_and_its_class(
    reason: str, server_errors: dict[str, type[TidelogServerError]]
) -> None:
    recorded = {"class": class_of_reason(reason).__name__, "code": code_name(server_errors[reason])}
    assert recorded == RECORDED["reasons"][reason]
    assert reason in class_of_reason(reason).reasons


@pytest.mark.parametrize("name", sorted(RECORDED["classes"]))
def test_a_class_of_the_client_keeps_its_name_its_parents_and_its_attributes(name: str) -> None:
    kind = getattr(tidelog, name)
    recorded = RECORDED["classes"][name]

    assert [parent.__name__ for parent in kind.__bases__] == recorded["parents"]
    assert set(recorded["attributes"]) <= set(vars(kind))
    assert all(vars(kind)[attribute].__doc__ for attribute in recorded["attributes"])
    assert kind.__doc__
    assert name in exported_names(tidelog)
    assert getattr(importlib.import_module("tidelog.errors"), name, kind) is kind


def test_the_tree_in_the_documents_has_every_class_below_its_first_parent() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    path, shown = ["TidelogError"], {"TidelogError": "Exception"}
    for indent, name in re.findall(r"^([│ ]*)[├└]── (\w+)", page, re.MULTILINE):
        path[len(indent) // 4 + 1 :] = [name]
        shown[name] = path[-2]

    errors = [name for name in exported_names(tidelog) if name.endswith("Error")]
    assert shown == {name: getattr(tidelog, name).__bases__[0].__name__ for name in errors}


@pytest.mark.parametrize("name", sorted(RECORDED["classes"]))
def test_a_class_of_the_client_survives_pickling(name: str) -> None:
    error = getattr(tidelog, name)("why", effect="unknown", values={"name": "a", "txn_id": "7"})

    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), str(copy), copy.effect, copy.values) == (type(error), "why", "unknown", error.values)
