"""Every domain error has exactly one status and one wire reason, and every reason belongs to an error.

Method: the tree of error classes with their reasons, against the table of `rpc.status`.

Promises of docs/reference/guarantees.md: G12.
"""

import importlib
import pkgutil

import tidelog_server
from tidelog.v1 import error_pb2
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.rpc.status import CODE_BY_ERROR


def descendants(kind: type[TidelogServerError]) -> set[type[TidelogServerError]]:
    children = set(kind.__subclasses__())
    return children.union(*(descendants(child) for child in children))


def test_every_error_has_one_status() -> None:
    # A class is known once its module is imported.
    for module in pkgutil.walk_packages(tidelog_server.__path__, "tidelog_server."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert descendants(TidelogServerError) == set(CODE_BY_ERROR)


def test_every_error_has_a_reason_of_its_own() -> None:
    reasons = [error.reason for error in CODE_BY_ERROR]
    assert len(set(reasons)) == len(reasons)


def test_every_reason_belongs_to_an_error() -> None:
    reasons = {f"REASON_{error.reason}" for error in CODE_BY_ERROR}
    assert {"REASON_UNSPECIFIED", *reasons} == set(error_pb2.Reason.keys())
