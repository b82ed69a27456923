"""``tidelog check backup``."""

import time
from pathlib import Path

from tidelog_cli.commands.check import Finding, over
from tidelog_cli.exit_codes import CheckCode
from tidelog_server.backup.folder import open_backup_folder
from tidelog_server.backup.manifest import BackupError


def check_backup(folder: Path, limit_s: float) -> Finding:
    """Check that the newest backup is complete and at most ``limit_s`` old; read only manifests."""
    try:
        backups = open_backup_folder(folder)
        newest = backups.manifest(None)
        damaged = [each.backup_id for each in backups.listed() if each.manifest is None]
    except BackupError as error:
        return CheckCode.CRITICAL, str(error), {}
    age_s = max(0.0, time.time() - newest.facts.created_ms / 1e3)
    code = over(age_s, limit_s)
    if damaged:
        return max(code, CheckCode.WARNING), f"{damaged[0]} has no readable manifest", {"age_s": round(age_s)}
    return code, f"{newest.backup_id} is {age_s / 3_600:.1f} h old", {"age_s": round(age_s)}
