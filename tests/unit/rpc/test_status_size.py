"""A status fits into the metadata that clients accept, with whatever text and values, and says what it has cut.

Method: random texts and values, compared with what a decoder finds in the trailing metadata.
"""

import base64
from urllib.parse import quote

from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.v1 import error_pb2
from tidelog_server.core.errors import ChannelNotExistError, InvalidRequestError
from tidelog_server.rpc.status import DETAILS_KEY, detail_in, text_of, trailing_metadata_of
from tidelog_server.rpc.status_size import INCOMPLETE, MAX_METADATA_BYTES, fitting

NAMES = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=30)
# Lone surrogates too: requests by HTTP may contain them.
TEXTS = st.text(st.characters(codec=None), max_size=3_000)
VALUES = st.dictionaries(
    NAMES.filter(lambda name: name != INCOMPLETE),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=400),
    max_size=8,
)


@given(TEXTS, st.dictionaries(NAMES, TEXTS, max_size=5))
@example("\U0001f30a" * 3_000, {"names": "\U0001f30a" * 3_000})
def test_the_metadata_of_an_error_fit_into_what_clients_accept(text: str, values: dict[str, str]) -> None:
    error = InvalidRequestError(text)
    error.values = values
    ((key, encoded),) = trailing_metadata_of(error)
    assert key == DETAILS_KEY
    # As on the wire: the text with percent signs, the details in base64.
    size = len(quote(text_of(error), safe="")) + len(base64.b64encode(encoded))
    assert size <= MAX_METADATA_BYTES - 256
    status = error_pb2.RpcStatus.FromString(encoded)
    assert [each.TypeName() for each in status.details] == ["tidelog.v1.ErrorDetail", "google.rpc.ErrorInfo"]


@given(VALUES, st.integers(600, 3_000))
def test_values_that_fit_are_whole_and_the_others_are_cut_and_named(values: dict[str, str], max_bytes: int) -> None:
    kept = fitting(values, max_bytes)
    message = error_pb2.RpcErrorInfo(metadata=kept)
    cut = kept.pop(INCOMPLETE, "").split(",")
    assert message.ByteSize() <= max_bytes
    assert kept.keys() == values.keys()
    for name in kept:
        assert kept[name] == values[name] if name not in cut else values[name].startswith(kept[name])


def test_a_list_of_names_is_cut_after_a_name() -> None:
    names = [f"{number:03}-{'x' * 120}" for number in range(100)]
    detail = detail_in(trailing_metadata_of(ChannelNotExistError.of(names)))
    kept = detail.values["names"].split(",")
    assert kept == names[: len(kept)]
    assert 10 <= len(kept) < 100
    assert detail.values[INCOMPLETE] == "names"
    assert detail.values["name"] == names[0]
