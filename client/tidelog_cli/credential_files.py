"""Checks the files of credentials before the first call: gRPC reports a wrong one only as a failed connection."""

from pathlib import Path

from tidelog import TlsOptions, TokenSource
from tidelog.transport.credentials import authorization
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.files import readable_file


def check_credentials(tls: TlsOptions | None, token: TokenSource | None, token_file: Path | None) -> None:
    """Check that the files can be read and have the content that they must have.

    Raises:
        CommandError: A file is missing or a folder, cannot be read, or is not a certificate, key or token.
    """
    if tls is not None:
        _check_tls(tls)
    if token_file is not None:
        readable_file(token_file, missing=ExitCode.USAGE)
    if token is not None:
        try:
            authorization(token)
        except OSError as error:
            raise CommandError(f"cannot read {token_file}: {error.strerror}", ExitCode.USAGE) from error
        except ValueError as error:
            # A file that is not ASCII is one of them: its error names a byte, which may be part of a secret.
            text = "the token is malformed: expected ASCII characters" if isinstance(error, UnicodeError) else error
            raise CommandError(str(text), ExitCode.USAGE) from error


def _check_tls(tls: TlsOptions) -> None:
    # Imported here because most commands have no TLS, and it takes 20 ms.
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ca, cert, key = (
        None if path is None else str(readable_file(str(path), missing=ExitCode.USAGE))
        for path in (tls.ca, tls.cert, tls.key)
    )
    try:
        if ca is not None:
            context.load_verify_locations(ca)
    except OSError as error:
        # ssl.SSLError is one of them.
        raise _wrong(f"{ca} has no certificate in PEM form", error) from error
    try:
        if cert is not None:
            # An empty password: without one, OpenSSL would ask for that of an encrypted key on the terminal.
            context.load_cert_chain(cert, key, password="")
    except OSError as error:
        raise _wrong(f"{cert} and {key} are not a certificate and its private key in PEM form", error) from error


def _wrong(what: str, error: OSError) -> CommandError:
    return CommandError(f"{what} ({getattr(error, 'reason', None) or error.strerror or error})", ExitCode.USAGE)
