"""What ``tidelog doctor`` reports of the keys of signed tokens. Method: an issuer on this machine."""

from tidelog_server.commands.probes import Severity
from tidelog_server.commands.probes_keys import check_keys
from tidelog_server.security.jwks import KeySource
from tidelog_testing.servers.certificates import Signer
from tidelog_testing.servers.issuer import Issuer


def test_the_keys_of_an_issuer_are_listed() -> None:
    with Issuer(Signer("one", kind="RS256"), Signer("two")) as issuer:
        found = check_keys(KeySource("", issuer.url))
        assert (found.severity, found.text) == (
            Severity.OK,
            f"of the issuer {issuer.url}: 'one' (RS256), 'two' (EdDSA)",
        )
        issuer.publish(Signer("one", kind="RS256", bits=1_024), Signer("two"))
        found = check_keys(KeySource("", issuer.url))
        assert (found.severity, "'one' has 1024 bits" in found.text) == (Severity.WARNING, True)


def test_a_failure_is_reported_with_its_cause() -> None:
    with Issuer(Signer()) as issuer:
        issuer.describe(issuer="https://other.example")
        found = check_keys(KeySource("", issuer.url))
    assert found.severity is Severity.FAILURE
    assert "its `issuer` is 'https://other.example'" in found.text
