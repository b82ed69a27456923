"""Key sets come from a file, from https, or from this machine; never from a redirect, and never without a size limit.

Method: a web server on a thread, with responses that the test chooses.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tidelog_server.core.limits import MAX_JWKS_BYTES
from tidelog_server.security.jwks import KeySetError, check_url, fetch, is_url, parse_key_set
from tidelog_testing.servers.certificates import Signer, write_key_set


@pytest.fixture
def url() -> Iterator[str]:
    signer = Signer("web")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps({"keys": [signer.jwk]}).encode()
            if self.path == "/large":
                content = b"x" * (MAX_JWKS_BYTES + 10)
            self.send_response({"/moved": 302, "/none": 404}.get(self.path, 200))
            self.send_header("Location", "/keys")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_are_fetched_from_this_machine_and_from_files(url: str, tmp_path: Path) -> None:
    assert parse_key_set(fetch(f"{url}/keys")).keys() == {"web"}
    assert parse_key_set(fetch(str(write_key_set(tmp_path / "keys.json", Signer("file"))))).keys() == {"file"}


def test_redirects_errors_and_endless_answers_are_refused(url: str, tmp_path: Path) -> None:
    for path in ("/moved", "/none"):
        with pytest.raises(KeySetError, match="cannot be read"):
            fetch(url + path)
    with pytest.raises(KeySetError, match="at most"):
        parse_key_set(fetch(f"{url}/large"))
    for source in (str(tmp_path / "missing"), "http://127.0.0.1:1/keys"):
        with pytest.raises(KeySetError, match="cannot be read"):
            fetch(source)


def test_keys_do_not_come_in_plaintext_from_another_machine() -> None:
    assert check_url("https://example.org/keys")
    with pytest.raises(KeySetError, match="https"):
        check_url("http://example.org/keys")
    assert not is_url("keys.json")
