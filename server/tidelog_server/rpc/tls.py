"""TLS of both ports, with a certificate that can be replaced while the server runs."""

import ssl
from collections.abc import Callable
from typing import cast

import grpc
import structlog

from tidelog_server.security.certificates import CertificateFiles, ServerCertificate
from tidelog_server.security.service import Security

_log = structlog.get_logger()


def server_credentials(security: Security) -> grpc.ServerCredentials:
    """Return credentials for gRPC that use the current certificate for each new connection."""
    first = security.certificate
    assert first is not None
    in_use = [first]

    def changed() -> grpc.ServerCertificateConfiguration | None:
        # Called on gRPC's threads before each handshake. None means no change, which costs nothing.
        certificate = security.certificate
        if certificate is None or certificate is in_use[0]:
            return None
        in_use[0] = certificate
        return _configuration(certificate)

    # The type does not allow None as a result; gRPC's documentation does.
    fetcher = cast("Callable[[], grpc.ServerCertificateConfiguration]", changed)
    return grpc.dynamic_ssl_server_credentials(
        _configuration(first), fetcher, require_client_authentication=first.client_ca is not None
    )


def _configuration(certificate: ServerCertificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificate.key, certificate.chain)], root_certificates=certificate.client_ca
    )


def http_context(files: CertificateFiles) -> ssl.SSLContext:
    """Return the TLS context of the HTTP port. Raises OSError.

    It verifies client certificates and requires none, because probes and Prometheus do not have any.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.cert, files.key)
    if files.client_ca is not None:
        context.load_verify_locations(files.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def renewed_http_context(files: CertificateFiles) -> ssl.SSLContext | None:
    """Return a context with the files as they are now. A failure is logged, and the result is None."""
    try:
        return http_context(files)
    except OSError as error:
        # The files were valid a moment ago, so they are being replaced again: the next poll reloads them.
        _log.error("http_certificate_not_renewed", cause=str(error))
        return None
