"""TLS of both ports, from a certificate that may be replaced while the server runs."""

import ssl
from collections.abc import Callable
from typing import cast

import grpc
import structlog

from tidelog_server.security.certificates import CertificateFiles, ServerCertificate
from tidelog_server.security.service import Security

_log = structlog.get_logger()


def server_credentials(security: Security) -> grpc.ServerCredentials:
    """Return what gRPC serves TLS with: at each new connection the certificate that is in force then."""
    first = security.certificate
    assert first is not None
    in_use = [first]

    def changed() -> grpc.ServerCertificateConfiguration | None:
        # Called by gRPC's threads, before each handshake. None keeps what was there, which costs nothing.
        certificate = security.certificate
        if certificate is None or certificate is in_use[0]:
            return None
        in_use[0] = certificate
        return _configuration(certificate)

    # The types do not tell that None is an answer; gRPC's documentation does.
    fetcher = cast("Callable[[], grpc.ServerCertificateConfiguration]", changed)
    return grpc.dynamic_ssl_server_credentials(
        _configuration(first), fetcher, require_client_authentication=first.client_ca is not None
    )


def _configuration(certificate: ServerCertificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificate.key, certificate.chain)], root_certificates=certificate.client_ca
    )


def http_context(files: CertificateFiles) -> ssl.SSLContext:
    """Return TLS for the HTTP port; ``renew`` gives it a new certificate. Raises OSError.

    Clients need no certificate there: probes and Prometheus have none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.cert, files.key)
    return context


def renew(context: ssl.SSLContext, files: CertificateFiles) -> None:
    """Serve new connections with what is in the files now."""
    try:
        context.load_cert_chain(files.cert, files.key)
    except OSError as error:
        # They were a pair a moment ago, so they are being changed again: the next look finds that.
        _log.error("http_certificate_not_renewed", cause=str(error))
