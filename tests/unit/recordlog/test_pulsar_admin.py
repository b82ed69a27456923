"""Calls of Pulsar's administration API: what each answer means, and brokers that send a caller to another one."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tidelog_server.recordlog.engine import (
    EngineUnavailableError,
    LogDeniedError,
    LogExistsError,
    LogMissingError,
    LogSetupError,
)
from tidelog_server.recordlog.pulsar import Topic
from tidelog_server.recordlog.pulsar_connection import PulsarConnection

Call = tuple[str, str, bytes, str | None, str | None]


class _Api(ThreadingHTTPServer):
    """An API that gives one answer, and notes its calls: method, path, body, token and host."""

    def __init__(self, status: int, body: bytes = b"", location: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = status, body, location
        self.calls: list[Call] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: _Api

    def answer(self) -> None:
        """Answer any call."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        called = self.headers.get("Authorization"), self.headers.get("Host")
        self.server.calls.append((self.command, self.path, body, *called))
        status, text, location = self.server.answer
        self.send_response(status)
        if location:
            self.send_header("Location", location + self.path)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_DELETE = answer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def api(status: int, body: bytes = b"", location: str = "") -> Iterator[_Api]:
    with _Api(status, body, location) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def connection(url: str, **options: str) -> PulsarConnection:
    return PulsarConnection("pulsar://127.0.0.1:1", url, options)


@pytest.mark.parametrize("status", [307, 302])
def test_a_call_is_repeated_at_the_broker_that_has_the_topic(status: int) -> None:
    with api(200, b'{"a": 1}') as owner, api(status, location=owner.url) as other:
        asked = connection(other.url, authParams="token:secret")
        assert asked.call("PUT", "/persistent/a/b/c", "create a topic", {"x": "y"}) == {"a": 1}
        host = owner.url.removeprefix("http://")
        expected = ("PUT", "/admin/v2/persistent/a/b/c", b'{"x": "y"}', "Bearer secret", host)
        assert owner.calls == [expected]


def test_brokers_that_send_a_caller_in_a_circle_are_an_error() -> None:
    with api(307) as circle:
        circle.answer = 307, b"", circle.url
        with pytest.raises(LogSetupError, match="cannot list: Pulsar answered 307"):
            connection(circle.url).call("GET", "/persistent/a/b", "list")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, LogDeniedError), (403, LogDeniedError), (404, LogMissingError), (409, LogExistsError),
        (412, LogSetupError), (500, EngineUnavailableError), (503, EngineUnavailableError),
    ],
)  # fmt: skip
def test_an_answer_says_what_was_to_be_done_and_why_not(status: int, kind: type[Exception]) -> None:
    reason = "\n --- An error ---\n\nMessage: it is so\n\nStacktrace:\n\n\tat a.b.c"
    with api(status, json.dumps({"reason": reason}).encode()) as asked:
        with pytest.raises(kind) as raised:
            connection(asked.url).call("GET", "/x", "do this")
        assert type(raised.value) is kind
        assert "do this" in str(raised.value)
        assert "(it is so)" in str(raised.value)
        assert "Stacktrace" not in str(raised.value)
        # Of a log that was served, it is no reason to stop.
        with pytest.raises(EngineUnavailableError):
            Topic(connection(asked.url), "persistent://a/b/c").running()


def test_an_api_that_does_not_answer_is_named() -> None:
    with api(200) as gone:
        url = gone.url
    with pytest.raises(EngineUnavailableError, match=f"cannot do this: .* at {url} does not answer"):
        connection(url).call("GET", "/x", "do this")


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{"ledg',
        b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"led',
        b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
        b"garbage\r\n\r\n",
        b"",
    ],
)
def test_an_answer_that_ends_early_or_is_something_else_is_no_answer(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reply() -> None:
            accepted, _ = listening.accept()
            with accepted:
                accepted.recv(65_536)
                accepted.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        with pytest.raises(EngineUnavailableError, match="cannot do this"):
            connection(f"http://127.0.0.1:{listening.getsockname()[1]}").call("GET", "/x", "do this")
        thread.join()


def test_the_token_is_read_for_each_call(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with api(200) as asked:
        made = connection(asked.url, authParams=f"file://{path}")
        with pytest.raises(LogDeniedError, match="the file of the token for Pulsar cannot be read"):
            made.call("GET", "/x", "do this")
        for token in ("one", "two"):
            path.write_text(f"{token}\n")
            made.call("GET", "/x", "do this")
        assert [call[3] for call in asked.calls] == ["Bearer one", "Bearer two"]


def test_the_environment_has_a_token_for_options_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_PULSAR_TOKEN", "secret")
    with api(200) as asked:
        connection(asked.url).call("GET", "/x", "do this")
        assert asked.calls[0][3] == "Bearer secret"
