"""The caller of a call: valid client ids, and the characters that an identity may contain.

Method: metadata is passed as gRPC passes it to a server; gRPC's client would refuse some of it.
"""

from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.callers import Caller, is_clean
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.transactions import AppKey
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.services.options import CLIENT_ID_KEY, caller_of
from tidelog_server.security.certificates import CertificateError, parse_client_certificate
from tidelog_server.txn.rows import app_name, parse_app_name
from tidelog_testing.servers.certificates import make_pair

UNCLEAN = ["\0", "a\nb", "\x1f", "\x7f", "a\x85", "\ud800", "a\udfff"]
names = st.text(st.characters(exclude_categories=("Cc", "Cs")))
printable = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1)


class Call:
    """The part of a call's context that the tested code uses."""

    def __init__(self, client_id: str | bytes | None) -> None:
        self._client_id = client_id

    def invocation_metadata(self) -> tuple[tuple[str, Any], ...]:
        return () if self._client_id is None else ((CLIENT_ID_KEY, self._client_id),)


def caller(client_id: str | bytes | None) -> Caller:
    return caller_of(cast("Context", cast("Any", Call(client_id))))


def test_a_client_is_what_it_calls_itself() -> None:
    assert caller(None) == Caller("", "")
    assert caller("b c") == Caller("", "b c")
    assert caller(b"b\xe9") == Caller("", "b\u00e9")


@pytest.mark.parametrize("client_id", ["\0", "a\nb", "\x1f", "\x7f", b"a\x85", ""], ids=ascii)
def test_a_client_id_with_control_characters_is_refused(client_id: str | bytes) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        caller(client_id)
    assert refused.value.values["field"] == CLIENT_ID_KEY


@pytest.mark.parametrize("text", UNCLEAN, ids=ascii)
def test_an_identity_has_no_control_characters_and_no_lone_surrogates(text: str) -> None:
    assert not is_clean(text)


@given(names)
def test_any_other_text_may_be_part_of_one(text: str) -> None:
    assert is_clean(text)


@given(st.builds(AppKey, names, printable), st.builds(AppKey, names, printable))
def test_different_applications_have_different_names_on_disk(one: AppKey, other: AppKey) -> None:
    assert parse_app_name(app_name(one)) == one
    assert (app_name(one) == app_name(other)) == (one == other)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), printable)
def test_the_name_of_an_application_of_an_earlier_server_is_read_and_written_alike(owner: str, app_id: str) -> None:
    name = f"{owner}\n{app_id}".encode()
    assert parse_app_name(name) == AppKey(owner, app_id)
    assert app_name(parse_app_name(name)) == name


def test_a_certificate_whose_name_has_control_characters_is_refused() -> None:
    issuer = make_pair("an authority")
    for name in ("host\n.example", "host\x7f.example"):
        subject = x509.SubjectAlternativeName([x509.DNSName(name)])
        made = (
            x509.CertificateBuilder().subject_name(issuer.certificate.subject).issuer_name(issuer.certificate.subject)
            .public_key(issuer.key.public_key()).serial_number(7)
            .not_valid_before(issuer.certificate.not_valid_before_utc)
            .not_valid_after(issuer.certificate.not_valid_after_utc)
            .add_extension(subject, critical=False).sign(issuer.key, hashes.SHA256())
        )  # fmt: skip
        pem = made.public_bytes(Encoding.PEM)
        with pytest.raises(CertificateError, match="control characters"):
            parse_client_certificate(pem)
