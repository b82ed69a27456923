"""The answers of health endpoints, as Kubernetes' API server writes them. Method: chosen and random checks."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.rpc.health_checks import HealthAnswer, answer

NAMES = st.sampled_from(["ping", "log", "disk", "lease", "other"])
CHECKS = st.dictionaries(NAMES.filter(lambda name: name != "other"), st.none() | st.just("it is broken"))


def test_a_list_has_each_check_the_excluded_ones_and_names_that_match_nothing() -> None:
    checks = {"ping": None, "log": "storage failed", "disk": "it is full"}
    assert answer("readyz", checks, is_verbose=True, excluded=["disk", "etcd"]) == HealthAnswer(
        False,
        "[+]ping ok\n[-]log failed: storage failed\n[+]disk excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "etcd"\nreadyz check failed\n',
    )
    assert answer("livez", {"ping": None}, is_verbose=True).text == "[+]ping ok\nlivez check passed\n"


def test_without_a_list_there_is_the_first_reason_only() -> None:
    checks = {"ping": None, "log": "storage failed", "disk": "it is full"}
    assert answer("readyz", checks) == HealthAnswer(False, "not ready: storage failed\n")
    assert answer("readyz", checks, excluded=["log"]) == HealthAnswer(False, "not ready: it is full\n")
    assert answer("readyz", checks, excluded=["log", "disk"]) == HealthAnswer(True, "ok\n")


@given(CHECKS, st.lists(NAMES), st.booleans())
def test_it_passes_exactly_if_what_counts_does(
    checks: dict[str, str | None], excluded: list[str], is_verbose: bool
) -> None:
    given_answer = answer("readyz", checks, is_verbose=is_verbose, excluded=excluded)
    assert given_answer.has_passed == all(why is None for name, why in checks.items() if name not in excluded)
    assert given_answer.text.endswith("\n")
