"""TLS credentials of a profile with an address."""

import ssl
from collections.abc import Callable
from pathlib import Path

from distributed.security import Security

from pipeline.clusters import rules
from pipeline.clusters.profiles import Profile
from pipeline.clusters.rules import check_names, check_values
from pipeline.errors import BadInputError
from pipeline.redact import short_repr

_TLS_VERSION = rules.Rule("771 for TLS 1.2 or 772 for TLS 1.3", lambda value: value in (771, 772))
_PARTS = {"tls_ca_file": "CERTIFICATE", "tls_client_cert": "CERTIFICATE", "tls_client_key": "PRIVATE KEY"}
_RULES = {
    "require_encryption": rules.FLAG,
    "tls_ciphers": rules.TEXT,
    "tls_min_version": _TLS_VERSION,
    "tls_max_version": _TLS_VERSION,
    "extra_conn_args": rules.MAPPING,
}


def make_security(profile: Profile) -> Security | None:
    """Return the TLS credentials of a profile, or None if the profile has none."""
    if not profile.security:
        return None
    where = f"profile {profile.name}: security"
    check_names(where, "key", profile.security, Security.__slots__)
    given = {key: value for key, value in profile.security.items() if value is not None}
    check_values(where, given, _RULES)
    contents = {key: _read_pem(f"{where}: {key}", key, given[key]) for key in _PARTS if key in given}
    security = Security(**given)
    if "tls_ca_file" in contents:
        requirement = f"{where}: tls_ca_file must be a certificate in PEM format"
        _check(requirement, lambda: ssl.create_default_context(cadata=contents["tls_ca_file"]))
    if "tls_ciphers" in given:
        requirement = f"{where}: tls_ciphers must be a list of OpenSSL ciphers"
        _check(requirement, ssl.create_default_context().set_ciphers, given["tls_ciphers"])
    requirement = f"{where}: tls_client_cert and tls_client_key must be a certificate and its private key"
    _check(requirement, security.get_connection_args, "client")
    return security


def _check(requirement: str, function: Callable[..., object], *args: object) -> None:
    """Call a function that loads credentials, and raise `BadInputError` if the call fails."""
    try:
        function(*args)
    except (OSError, ValueError) as error:  # TLS errors are subclasses of OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise BadInputError(f"{requirement}, got {reason}") from None


def _read_pem(where: str, key: str, given: object) -> str:
    """Return the text of a certificate or of a key, which is given as text or as the path of a file."""
    wanted = f"{where} must be a file in PEM format"
    if not isinstance(given, str):
        raise BadInputError(f"{wanted}, got {short_repr(given, key)}")
    try:
        text = given if "\n" in given else Path(given).read_text(encoding="ascii", errors="ignore")
    except FileNotFoundError:
        raise BadInputError(f"{wanted}; no file exists at {short_repr(given, key)}") from None
    except (OSError, ValueError) as error:  # a path with a null character raises ValueError
        raise BadInputError(f"{wanted}, got {getattr(error, 'strerror', None) or error}") from None
    if f"{_PARTS[key]}-----" not in text:
        raise BadInputError(f"{wanted} with a {_PARTS[key].lower()}, got none")
    if "ENCRYPTED" in text:
        raise BadInputError(f"{wanted} without a passphrase, got an encrypted key")
    return text
