"""Configuration: every setting, its default, and the four layers that may change it."""

from tidelog_server.config.error import ConfigError
from tidelog_server.config.load import Config, load_config
from tidelog_server.config.settings import (
    LogSettings,
    MetadataSettings,
    ServerSettings,
    SettingDescription,
    StorageSettings,
    describe_settings,
)

__all__ = [
    "Config",
    "ConfigError",
    "LogSettings",
    "MetadataSettings",
    "ServerSettings",
    "SettingDescription",
    "StorageSettings",
    "describe_settings",
    "load_config",
]
