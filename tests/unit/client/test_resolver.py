"""Which server is called, with which credentials. Method: a table of sources, and hypothesis over all of them at once.

The property: credentials of a source are never sent to a server that another source names.
"""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import AsyncClient, AsyncCluster, Client, Cluster, TlsOptions
from tidelog.finding.owner_client import OwnerFindingClient
from tidelog.settings.contexts import Context, ContextError, ContextFile
from tidelog.settings.resolver import DEFAULT_ENDPOINT, Given, Target, target_of, target_of_context


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with contexts, of which ``chosen`` is selected."""
    made = tmp_path_factory.mktemp("contexts")
    with ContextFile(made).changed() as held:
        for name, context in {
            "bare": Context("bare:1"),
            "chosen": Context("tidelogs://chosen:1,chosen:2", token="of-chosen"),
            "named": Context("named:1", token="of-named", tls_ca="/ca-of-named"),
        }.items():
            held[0] = held[0].added(name, context, replace=False)
        held[0] = held[0].used("bare").used("chosen")
    return made


@pytest.mark.parametrize(
    ("given_", "variables", "endpoint", "token"),
    [
        (Given(), {}, "chosen:1,chosen:2", "of-chosen"),
        (Given(), {"TIDELOG_TOKEN": "t"}, "chosen:1,chosen:2", "of-chosen"),
        (Given(token="mine"), {"TIDELOG_TOKEN": "t"}, "chosen:1,chosen:2", "mine"),
        (Given(), {"TIDELOG_ENDPOINT": "env:1", "TIDELOG_TOKEN": "t"}, "env:1", "t"),
        (Given(), {"TIDELOG_ENDPOINT": "env:1"}, "env:1", ""),
        (Given(), {"TIDELOG_ENDPOINT": "env:1", "TIDELOG_CONTEXT": "named"}, "named:1", "of-named"),
        (Given(context="bare"), {"TIDELOG_ENDPOINT": "env:1", "TIDELOG_TOKEN": "t"}, "bare:1", ""),
        (Given(context="-"), {"TIDELOG_CONTEXT": "named", "TIDELOG_TOKEN": "t"}, "bare:1", ""),
        (Given(endpoint="opt:1"), {"TIDELOG_CONTEXT": "named", "TIDELOG_TOKEN": "t"}, "opt:1", "t"),
        (Given(endpoint="opt:1", token="mine"), {"TIDELOG_TOKEN_FILE": "/f"}, "opt:1", "mine"),
    ],
)
def test_one_source_names_the_server_and_the_credentials(
    folder: Path, given_: Given, variables: dict[str, str], endpoint: str, token: str
) -> None:
    target = target_of(given_, {"TIDELOG_CONFIG_HOME": str(folder), **variables})
    assert (target.endpoint, target.token, target.is_default) == (endpoint, token, False)


def test_without_any_source_it_is_this_machine() -> None:
    target = target_of(environment={"TIDELOG_TOKEN": "t"})
    assert (target.endpoint, target.token, target.is_default) == (DEFAULT_ENDPOINT, "t", True)
    assert target_of(environment={}, default="[::1]:9").endpoint == "[::1]:9"


def test_files_of_tokens_precede_tokens_of_the_same_source() -> None:
    both = {"TIDELOG_ENDPOINT": "a:1", "TIDELOG_TOKEN": "t", "TIDELOG_TOKEN_FILE": "/f"}
    assert target_of(environment=both).token_file == "/f"
    assert target_of(environment=both).token == ""
    assert target_of(Given(token="mine"), both).token_file == ""
    assert target_of(Given(token_file="/mine"), both) == Target(("a:1",), token_file="/mine")


@pytest.mark.parametrize(
    ("given_", "variables", "reason"),
    [
        (Given(endpoint="a:1", context="named"), {}, "both an endpoint and the context 'named'"),
        (Given(context="absent"), {}, "no context 'absent': expected one of bare, chosen, named"),
        (Given(), {"TIDELOG_CONTEXT": "absent"}, "no context 'absent'"),
        (Given(), {"TIDELOG_ENDPOINT": "a"}, r"has no port.*\(from TIDELOG_ENDPOINT\)"),
        (Given(endpoint="http://a:1"), {}, "is a URL"),
    ],
)
def test_what_cannot_be_decided_is_refused(folder: Path, given_: Given, variables: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        target_of(given_, {"TIDELOG_CONFIG_HOME": str(folder), **variables})


def test_the_file_of_contexts_is_not_read_if_an_address_is_known(tmp_path: Path) -> None:
    (tmp_path / "contexts.json").write_text("damaged")
    variables = {"TIDELOG_CONFIG_HOME": str(tmp_path)}
    assert target_of(Given(endpoint="a:1"), variables).endpoint == "a:1"
    assert target_of(environment={**variables, "TIDELOG_ENDPOINT": "b:1"}).endpoint == "b:1"
    with pytest.raises(ContextError):
        target_of(environment=variables)


_names = st.sampled_from(("", "bare", "chosen", "named", "-"))
_tokens = {"bare:1": "", "chosen:1": "of-chosen", "named:1": "of-named", "env:1": "of-env", DEFAULT_ENDPOINT: "of-env"}


@given(
    endpoint=st.sampled_from(("", "opt:1")),
    context=_names,
    of_context=_names,
    of_endpoint=st.sampled_from(("", "env:1")),
    has_token=st.booleans(),
)
def test_no_credential_is_sent_to_a_server_of_another_source(
    folder: Path, endpoint: str, context: str, of_context: str, of_endpoint: str, has_token: bool
) -> None:
    variables = {
        "TIDELOG_CONFIG_HOME": str(folder), "TIDELOG_CONTEXT": of_context, "TIDELOG_ENDPOINT": of_endpoint,
        "TIDELOG_TOKEN": "of-env" if has_token else "",
    }  # fmt: skip
    if endpoint and context:
        return
    target = target_of(Given(endpoint=endpoint, context=context), variables)
    expected = _tokens.get(target.endpoints[0], "of-env")
    assert target.token == (expected if has_token or expected != "of-env" else "")


def test_tls_is_used_if_the_url_or_an_option_asks_for_it() -> None:
    assert target_of(Given(endpoint="a:1"), {}).tls() is None
    assert target_of(Given(endpoint="tidelog://a:1"), {}).tls() is None
    assert target_of(Given(endpoint="tidelogs://a:1"), {}).tls() == TlsOptions()
    assert target_of(Given(endpoint="tidelog://a:1", tls_ca="/ca"), {}).tls() == TlsOptions("/ca")
    assert target_of(Given(endpoint="tidelogs://a:1"), {}).url == "tidelogs://a:1"
    with pytest.raises(ValueError, match="requires both"):
        target_of(Given(endpoint="tidelogs://a:1", tls_cert="/cert"), {}).tls()


def test_a_target_can_be_pickled_and_shows_no_token() -> None:
    target = target_of(Given(endpoint="tidelogs://a:1", token="secret"), {})
    assert pickle.loads(pickle.dumps(target)) == target
    assert "secret" not in repr(target)
    assert "secret" not in repr(Given(token="secret"))


@pytest.fixture
def with_contexts(monkeypatch: pytest.MonkeyPatch, folder: Path) -> pytest.MonkeyPatch:
    monkeypatch.setenv("TIDELOG_CONFIG_HOME", str(folder))
    for variable in ("TIDELOG_ENDPOINT", "TIDELOG_CONTEXT", "TIDELOG_TOKEN", "TIDELOG_TOKEN_FILE", "TIDELOG_TLS_CA"):
        monkeypatch.delenv(variable, raising=False)
    return monkeypatch


def test_only_an_address_makes_a_client_that_stays_there(with_contexts: pytest.MonkeyPatch) -> None:
    assert type(AsyncClient("a:1")) is AsyncClient
    assert type(AsyncClient("unix:/run/log")) is AsyncClient
    for made in (AsyncClient("tidelog://a:1"), AsyncClient(), AsyncClient(endpoint=None), AsyncClient.from_context()):
        assert type(made) is OwnerFindingClient
        assert isinstance(made, AsyncClient)
    with pytest.raises(ValueError, match="several servers"):
        AsyncClient("a:1,b:1")


def test_an_address_in_a_call_gets_no_credentials_of_the_environment(with_contexts: pytest.MonkeyPatch) -> None:
    with_contexts.setenv("TIDELOG_ENDPOINT", "env:1")
    with_contexts.setenv("TIDELOG_TOKEN", "of-env")
    with_contexts.setenv("TIDELOG_TLS_CA", "/ca")
    for client in (AsyncClient("other:7420"), AsyncClient("tidelog://other:7420"), AsyncClient("tidelogs://other:1")):
        assert client._token is None
    client = AsyncClient()
    assert (client.endpoint, client._token, client._tls) == ("env:1", "of-env", TlsOptions("/ca"))


def test_a_token_of_the_environment_is_not_sent_unencrypted_to_another_machine(
    with_contexts: pytest.MonkeyPatch,
) -> None:
    with_contexts.setenv("TIDELOG_ENDPOINT", "localhost:1,other:2")
    with_contexts.setenv("TIDELOG_TOKEN", "of-env")
    for make in (AsyncClient, Client, AsyncCluster, Cluster):
        with pytest.raises(ValueError, match="unencrypted to other:2"):
            make()


def test_arguments_replace_credentials_of_the_source(with_contexts: pytest.MonkeyPatch) -> None:
    client = AsyncClient.from_context("chosen", token="mine")
    assert (client._token, client._tls) == ("mine", TlsOptions())
    assert AsyncClient.from_context("bare", timeout_s=3.0).timeout_s == 3.0
    with pytest.raises(ContextError, match="no context 'absent'"):
        AsyncClient.from_context("absent")


def test_a_context_is_needed_where_one_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ContextError, match="no context is selected"):
        target_of_context(None, {"TIDELOG_CONFIG_HOME": str(tmp_path), "TIDELOG_ENDPOINT": "env:1"})


def test_the_twins_read_the_same(with_contexts: pytest.MonkeyPatch) -> None:
    with_contexts.setenv("TIDELOG_CONTEXT", "chosen")
    with Client() as client, Client.from_context("-") as previous, Cluster() as cluster:
        assert client.endpoint == "chosen:1"
        assert previous.endpoint == "bare:1"
        assert cluster.endpoints == ("chosen:1", "chosen:2")
    with Cluster.from_context("named", timeout_s=2.0) as cluster:
        assert (cluster.endpoints, cluster.timeout_s) == (("named:1",), 2.0)
    for made in (client, cluster):
        with pytest.raises(TypeError, match="cannot be handed to another process"):
            pickle.dumps(made)
