"""Configuration: every setting, its default, and the four layers that can set it."""

from tidelog_server.config.connections import connections_of_address
from tidelog_server.config.error import ConfigError
from tidelog_server.config.layers import SERVICE_LINKS_HINT
from tidelog_server.config.load import BUILT_IN, Config, load_config
from tidelog_server.config.reload import ReloadablePart, Reloader, ReloadOutcome, ReloadRefusedError
from tidelog_server.config.settings import (
    AuthSettings,
    LogSettings,
    MetadataSettings,
    QuotaSettings,
    ServerSettings,
    SettingDescription,
    StorageSettings,
    TlsSettings,
    describe_settings,
    is_exposed,
    is_unspecified,
)

__all__ = [
    "BUILT_IN",
    "SERVICE_LINKS_HINT",
    "AuthSettings",
    "Config",
    "ConfigError",
    "LogSettings",
    "MetadataSettings",
    "QuotaSettings",
    "ReloadOutcome",
    "ReloadRefusedError",
    "ReloadablePart",
    "Reloader",
    "ServerSettings",
    "SettingDescription",
    "StorageSettings",
    "TlsSettings",
    "connections_of_address",
    "describe_settings",
    "is_exposed",
    "is_unspecified",
    "load_config",
]
