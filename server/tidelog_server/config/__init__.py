"""Configuration: every setting, its default, and the four layers that can set it."""

from tidelog_server.config.connections import connections_of_address
from tidelog_server.config.error import ConfigError
from tidelog_server.config.layers import SERVICE_LINKS_HINT
from tidelog_server.config.load import BUILT_IN, Config, assignments_of, load_config
from tidelog_server.config.relations import is_exposed, is_unspecified
from tidelog_server.config.reload import ReloadablePart, Reloader, ReloadOutcome, ReloadRefusedError
from tidelog_server.config.schema import settings_schema
from tidelog_server.config.settings import (
    ANY_NODE,
    DISCOVERED,
    RELOADABLE,
    AuthSettings,
    EngineSettings,
    LogSettings,
    MetadataSettings,
    QuotaSettings,
    ServerSettings,
    SettingDescription,
    StorageSettings,
    TlsSettings,
    describe_settings,
)
from tidelog_server.config.values import claim_path

__all__ = [
    "ANY_NODE",
    "BUILT_IN",
    "DISCOVERED",
    "RELOADABLE",
    "SERVICE_LINKS_HINT",
    "AuthSettings",
    "Config",
    "ConfigError",
    "EngineSettings",
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
    "assignments_of",
    "claim_path",
    "connections_of_address",
    "describe_settings",
    "is_exposed",
    "is_unspecified",
    "load_config",
    "settings_schema",
]
