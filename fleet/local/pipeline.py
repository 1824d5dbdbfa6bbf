"""Whether the pipeline can run on this machine. Asked before a process is started that would fail again and again."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from fleet.config.router import RouterConfig
from fleet.config.settings import Settings


def why_not(environment: Mapping[str, str]) -> str:
    """What is missing, in one line; '' if it can run."""
    if find_spec("pyspark") is None:
        return "PySpark is not installed: install fleet[spark]"
    home = environment.get("JAVA_HOME")
    if not (home and (Path(home) / "bin" / "java").exists()) and not shutil.which("java", path=environment.get("PATH")):
        return "there is no Java: install 17 or later (Debian: apt-get install default-jre-headless)"
    return ""


def is_configured(settings: Settings, config: RouterConfig) -> bool:
    """Whether somebody reads the queue that it would write to."""
    wanted = settings.feed.queue_url
    return settings.feed.enabled and any(queue.uri == wanted and not queue.draining for queue in config.queues)
