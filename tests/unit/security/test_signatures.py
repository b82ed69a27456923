"""Checks of invalid signatures are bounded, and a valid token on its own connection is always checked.

Method: the budget by itself with simulated time; and the authenticator that uses it, with real keys and a counter of
signature checks.
"""

import json
from collections.abc import Callable

import pytest

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.errors.access import UnauthenticatedError
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.security import authenticator
from tidelog_server.security.authenticator import Authenticator, Shown
from tidelog_server.security.jwks import parse_key_set
from tidelog_server.security.jwt_tokens import JwtPolicy, verify
from tidelog_server.security.signatures import BAD_SIGNATURES_PER_CONNECTION, MAX_BAD_SIGNATURES_PER_S, SignatureBudget
from tidelog_server.security.token_store import TokenStore
from tidelog_testing.servers.certificates import AUDIENCE, ISSUER, Signer

FAILURES_PER_MINUTE = 10


def spend(budget: SignatureBudget, connection: str, now_s: float = 0.0) -> int:
    """Check bad signatures on a connection until one is refused; return their number."""
    for count in range(10_000):
        try:
            budget.check(connection, now_s)
        except RateLimitRejectedError:
            return count
        budget.note_bad(connection, now_s)
    raise AssertionError("nothing was refused")


def test_a_connection_has_its_own_and_then_the_share_of_the_node() -> None:
    budget = SignatureBudget(0.0)
    assert spend(budget, "a") == BAD_SIGNATURES_PER_CONNECTION + MAX_BAD_SIGNATURES_PER_S
    assert spend(budget, "b") == BAD_SIGNATURES_PER_CONNECTION
    assert spend(budget, "a", 0.5) == MAX_BAD_SIGNATURES_PER_S / 2


def test_a_refusal_says_how_long_to_wait() -> None:
    budget = SignatureBudget(0.0)
    spend(budget, "a")
    with pytest.raises(RateLimitRejectedError) as refused:
        budget.check("a", 0.0)
    assert 1 <= int(refused.value.values["retry_after_ms"]) <= 10


def test_many_connections_leave_a_new_one_its_own() -> None:
    budget = SignatureBudget(0.0)
    for number in range(1_000):
        spend(budget, f"bad {number}")
    assert spend(budget, "good") == BAD_SIGNATURES_PER_CONNECTION


class Server:
    """An authenticator with one key, and the number of signatures that it has checked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.signer, self.forger, self.checks = Signer(), Signer(), 0
        clock = SystemClock()

        def counted(*arguments: object) -> object:
            self.checks += 1
            return verify(*arguments)  # type: ignore[arg-type]  # Handed through.

        monkeypatch.setattr(authenticator, "verify", counted)
        self._authenticator = Authenticator(
            TokenStore(MemoryMetadataStore(), "root", clock), clock, needs_credentials=True,
            jwt=JwtPolicy(ISSUER, AUDIENCE, 30, 3_600), max_failures_per_minute=FAILURES_PER_MINUTE,
        )  # fmt: skip
        self.publish(self.signer)

    def publish(self, signer: Signer) -> None:
        self._authenticator.keys = parse_key_set(json.dumps({"keys": [signer.jwk]}).encode())

    def name(self, token: str, connection: str) -> str:
        shown = Shown((f"Bearer {token}",), b"", "10.0.0.1", False, True, connection)
        return self._authenticator.authenticate(shown).name


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def refusals(call: Callable[[], object], times: int) -> list[type[Exception]]:
    found: list[type[Exception]] = []
    for _ in range(times):
        with pytest.raises((UnauthenticatedError, RateLimitRejectedError)) as refused:
            call()
        found.append(refused.type)
    return found


def test_bad_tokens_of_an_address_are_throttled_while_a_fresh_good_one_is_taken(server: Server) -> None:
    answers = refusals(lambda: server.name(server.forger.token(), "bad"), 500)

    assert answers[:FAILURES_PER_MINUTE] == [UnauthenticatedError] * FAILURES_PER_MINUTE
    assert set(answers[FAILURES_PER_MINUTE:]) == {RateLimitRejectedError}
    # Real time passes meanwhile, so the budget of the node may have been refilled.
    assert server.checks <= FAILURES_PER_MINUTE + BAD_SIGNATURES_PER_CONNECTION + 3 * MAX_BAD_SIGNATURES_PER_S
    for number in range(50):
        assert server.name(server.signer.token(sub=f"s{number}"), f"good {number}") == f"jwt:s{number}"


def test_a_good_token_on_a_connection_with_some_bad_ones_is_taken(server: Server) -> None:
    refusals(lambda: server.name(server.forger.token(), "shared"), 60)
    assert server.name(server.signer.token(), "shared") == "jwt:alice"


def test_a_bad_token_that_is_sent_again_is_not_checked_again_until_keys_change(server: Server) -> None:
    token = server.forger.token()
    refusals(lambda: server.name(token, "bad"), 100)
    assert server.checks == 1
    server.publish(server.forger)
    assert server.name(token, "bad") == "jwt:alice"


def test_what_is_bad_before_its_signature_costs_no_check(server: Server) -> None:
    unknown = Signer("unknown")
    refusals(lambda: server.name(unknown.token(), "bad"), 50)
    refusals(lambda: server.name("no.token.at all", "bad"), 50)
    assert server.checks == 0
