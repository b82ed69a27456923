"""Access tokens in the exact form of identity providers: their headers, claims and lifetimes.

Sources: Keycloak 26, a token of a client's service account with the scopes ``roles``, ``profile`` and ``email`` and an
audience mapper; Microsoft, "Access token claims reference", version 2.0, client credentials and users; Kubernetes,
"Managing Service Accounts", a projected token of 1.32.
"""

import time
import uuid
from typing import Any, Final

from tidelog_testing.servers.certificates import Signer

ENTRA_TENANT: Final = "72f988bf-86f1-41af-91ab-2d7cd011db47"
ENTRA_AUDIENCE: Final = "6e74172b-be56-4843-9ff4-e66a39bb12e3"
ENTRA_SUBJECT: Final = "690222be-ff1a-4d56-abd1-7e4f7d38e474"
KEYCLOAK_SUBJECT: Final = "36fa0f91-f94d-4a0c-afed-6b7d952e47da"
KUBERNETES_SUBJECT: Final = "system:serviceaccount:shop:billing"


def keycloak(signer: Signer, issuer: str, audience: str, **changed: Any) -> str:
    """Return a token of Keycloak. The header has ``alg``, ``typ`` and ``kid``; roles are below ``realm_access``."""
    now_s = int(time.time())
    claims = {
        "exp": now_s + 300, "iat": now_s, "jti": f"trrtcc:{uuid.uuid4()}", "iss": issuer,
        "aud": [audience, "account"], "sub": KEYCLOAK_SUBJECT, "typ": "Bearer", "azp": "billing", "acr": "1",
        "allowed-origins": ["/*"],
        "realm_access": {"roles": ["offline_access", "writer", "default-roles-acme", "uma_authorization"]},
        "resource_access": {"account": {"roles": ["manage-account", "manage-account-links", "view-profile"]}},
        "scope": "profile email", "email_verified": False, "clientHost": "192.0.2.7", "clientAddress": "192.0.2.7",
        "preferred_username": "service-account-billing", "client_id": "billing",
    }  # fmt: skip
    return signer.signed({"typ": "JWT", "kid": signer.kid}, claims | changed)


def entra(signer: Signer, issuer: str, *, lifetime_s: int = 3_900, has_x5t: bool = False, **changed: Any) -> str:
    """Return a token of Entra ID, version 2.0.

    It has ``uti`` and no ``jti``. ``iat`` is five minutes before it was issued, so that ``lifetime_s`` is 65 to 95
    minutes. ``x5t`` is in the header of tokens of version 1.0.
    """
    issued_s = int(time.time()) - 300
    claims = {
        "aud": ENTRA_AUDIENCE, "iss": issuer, "iat": issued_s, "nbf": issued_s, "exp": issued_s + lifetime_s,
        "aio": "k2ZgYJhndz/b8uyHNezulVls53Y6AwA=", "azp": "75dbe77f-10a3-4e59-85fd-8c127544f17c", "azpacr": "1",
        "groups": ["5e6f7a8b-2222-4c2d-9e7e-0123456789ab"], "idtyp": "app", "oid": ENTRA_SUBJECT,
        "rh": "1.AWMB9SY2Mv4bzUiJAt39_UThzgMAAAAAAAAAwAAAAAAAAAAAAABjAQ.", "roles": ["writer"], "sub": ENTRA_SUBJECT,
        "tid": ENTRA_TENANT, "uti": "pBmCzQc5oEmjQkkvSH4UAQ", "ver": "2.0",
    }  # fmt: skip
    header = {"typ": "JWT", "kid": signer.kid}
    return signer.signed(header | ({"x5t": signer.kid} if has_x5t else {}), claims | changed)


def kubernetes(signer: Signer, issuer: str, audience: str, *, has_jti: bool = True, **changed: Any) -> str:
    """Return the token of a service account that is bound to a pod.

    The header has ``alg`` and ``kid`` only; clusters before 1.30 make no ``jti``.
    """
    now_s = int(time.time())
    claims = {
        "aud": [audience], "exp": now_s + 3_600, "iat": now_s, "iss": issuer,
        "kubernetes.io": {
            "namespace": "shop",
            "node": {"name": "node-1", "uid": "517eb86e-b863-451b-bf70-86cb61439a3a"},
            "pod": {"name": "billing-0", "uid": "0d8b260e-ef0e-45fb-be8e-ff44f97722e8"},
            "serviceaccount": {"name": "billing", "uid": "e6a8680e-d103-4cce-80ea-03acbbeacf7d"},
        },
        "nbf": now_s, "sub": KUBERNETES_SUBJECT,
    }  # fmt: skip
    identity = {"jti": str(uuid.uuid4())} if has_jti else {}
    return signer.signed({"kid": signer.kid}, claims | identity | changed)
