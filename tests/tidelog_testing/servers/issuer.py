"""An identity provider on loopback: a document of discovery and a key set, from a web server on a thread."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from tidelog_testing.servers.certificates import Signer

KEYS_PATH = "/keys"
DOCUMENT = "/.well-known/openid-configuration"


class Issuer:
    """Serves what ``answers`` has; ``with`` ends it.

    Attributes:
        url: The issuer, as in ``iss``.
        base: Its scheme, host and port.
        answers: For each path, the status and the content; a status of 302 leads to the keys, one of 0 is not HTTP.
        asked: The paths of all requests.
        may_answer: Cleared by a test to let requests wait.
    """

    def __init__(
        self, *signers: Signer, path: str = "", keys_path: str = KEYS_PATH, pair: tuple[Path, Path] | None = None
    ) -> None:
        """Begin to serve, over HTTPS if ``pair`` has a certificate and its key."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                issuer.may_answer.wait()
                status, content = issuer.answers.get(self.path, (404, b""))
                if not status:
                    self.wfile.write(b"SSH-2.0-server\r\n")
                    return
                self.send_response(status)
                self.send_header("Location", keys_path)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if pair is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*pair)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if pair is None else "https"
        self.base = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self.url = self.base + path
        self._path, self._keys_path = path, keys_path
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.publish(*signers)
        self.describe()
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def publish(self, *signers: Signer) -> None:
        """Replace the key set."""
        self.answers[self._keys_path] = (200, json.dumps({"keys": [signer.jwk for signer in signers]}).encode())

    def describe(self, **changed: object) -> None:
        """Replace the document of discovery by one that is right except for ``changed``; None omits a member."""
        document = {
            "issuer": self.url, "jwks_uri": self.base + self._keys_path, "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256"], **changed,
        }  # fmt: skip
        content = json.dumps({name: value for name, value in document.items() if value is not None}).encode()
        self.answers[self._path + DOCUMENT] = (200, content)

    def close(self) -> None:
        """Stop serving."""
        self.may_answer.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
