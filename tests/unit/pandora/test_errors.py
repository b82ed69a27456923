"""Errors have the texts of pandora's API. Method: every class with its text, and the tree in the module's docstring."""

import pickle

import pytest

from tidelog import TidelogError, pandora
from tidelog.pandora import (
    ApiError,
    BlobNotFoundError,
    InputTooShortError,
    InvalidHeaderEncodingError,
    InvalidMailBoxError,
    KeyTooShortError,
    MessageTooBigError,
    NilBodyError,
    NoMessagesError,
    ReceiverNotFoundError,
    SenderNotFoundError,
    StaleLockError,
    UnableToChangeStatusError,
    errors,
)
from tidelog_testing.documents.exports import exported_names

TEXTS: list[tuple[type[ApiError], str]] = [
    (KeyTooShortError, "key is too short"),
    (InputTooShortError, "input is to short to process"),
    (InvalidHeaderEncodingError, "header should be a valid utf-8"),
    (MessageTooBigError, "message is too big. max size is 4096"),
    (NilBodyError, "body is nil"),
    (InvalidMailBoxError, "invalid mailbox"),
    (SenderNotFoundError, "sender not found"),
    (ReceiverNotFoundError, "receiver not found"),
    (UnableToChangeStatusError, "unable to change status"),
    (StaleLockError, "unable to change status"),
    (NoMessagesError, "no messages at this moment"),
    (BlobNotFoundError, "key not found"),
]


@pytest.mark.parametrize(("kind", "text"), TEXTS)
def test_an_error_has_the_text_of_pandora(kind: type[ApiError], text: str) -> None:
    error = kind()
    assert (str(error), error.effect) == (text, "none")
    assert (type(pickle.loads(pickle.dumps(error))), str(pickle.loads(pickle.dumps(error)))) == (kind, text)
    assert isinstance(error, TidelogError)


def test_an_error_may_have_another_text() -> None:
    assert str(ApiError("of another store")) == "of another store"


def test_every_exported_error_stands_in_the_tree() -> None:
    exported = [name for name in exported_names(pandora) if name.endswith("Error")]
    assert len(exported) == len(TEXTS) + 5
    assert [name for name in exported if name not in (errors.__doc__ or "")] == []
