"""Signed tokens that are right but for their signature, each another one: every one costs the server a check."""

import asyncio
import base64
import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from benchmarks.attacks.attack import Assault, Attack
from benchmarks.siege.server import BenchServer
from tidelog import OverloadedError, Retry, UnauthenticatedError

_TASKS: Final = 16
_METHOD: Final = "/tidelog.v1.WalService/GetWalName"
_KID: Final = "bench-key"
_ISSUER: Final = "https://bench.example"
_AUDIENCE: Final = "bench"
_LIFETIME_S: Final = 600
_FRESH: Final = 20


def _signed(key: Ed25519PrivateKey, subject: str) -> str:
    """Return a token of a subject."""
    now_s = int(time.time())
    claims = {
        "iss": _ISSUER, "aud": _AUDIENCE, "sub": subject, "iat": now_s, "exp": now_s + _LIFETIME_S,
        "jti": uuid.uuid4().hex,
    }  # fmt: skip
    parts = [_base64(json.dumps(part).encode()) for part in ({"alg": "EdDSA", "typ": "JWT", "kid": _KID}, claims)]
    return ".".join([*parts, _base64(key.sign(".".join(parts).encode()))])


def _base64(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


class _Issuer:
    """What the server trusts. It lives in the process of the benchmark, and the attack never sees its key."""

    def __init__(self) -> None:
        self.key = Ed25519PrivateKey.generate()

    def configure(self, folder: Path) -> Mapping[str, str]:
        """Write what the server needs to know its tokens; return the settings."""
        public = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        key = {"kty": "OKP", "crv": "Ed25519", "kid": _KID, "use": "sig", "x": _base64(public)}
        keys = folder / "jwks.json"
        keys.write_text(json.dumps({"keys": [key]}))
        return {"auth.jwt_jwks": str(keys), "auth.jwt_issuer": _ISSUER, "auth.jwt_audience": _AUDIENCE}

    async def check(self, server: BenchServer) -> Mapping[str, float]:
        """Return how many of some tokens that the server has not seen are refused, from the address of the attack."""
        refused = 0
        for number in range(_FRESH):
            async with server.client(_signed(self.key, f"fresh-{number}"), retry=Retry(give_up_s=0.0)) as client:
                try:
                    await client.wal_name()
                except (OverloadedError, UnauthenticatedError):
                    refused += 1
        return {"fresh_tokens": _FRESH, "fresh_tokens_refused": refused}


async def run(assault: Assault) -> None:
    """Show them, each task on a connection of its own."""
    forger = Ed25519PrivateKey.generate()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(_TASKS):
            tasks.create_task(_show(assault, forger))
        assault.under_way()


async def _show(assault: Assault, forger: Ed25519PrivateKey) -> None:
    async with assault.order.channel() as channel:
        call: Any = channel.unary_unary(_METHOD)
        while True:
            try:
                await call(b"", metadata=(("authorization", f"Bearer {_signed(forger, 'a principal')}"),))
            except grpc.aio.AioRpcError as error:
                assault.counts[error.code().name.lower()] += 1


_issuer: Final = _Issuer()

ATTACK: Final = Attack(
    name="bad-signatures", what="shows signed tokens with wrong signatures", run=run,
    configure=_issuer.configure, check=_issuer.check,
)  # fmt: skip
