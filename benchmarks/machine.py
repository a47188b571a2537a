"""What the figures depend on besides the code: the machine, the commit, how things were built."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.settings import PROJECT, Settings, usable_cpus


def describe(settings: Settings) -> dict[str, Any]:
    """Return everything that is needed to judge or repeat a figure; names no path and no host."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": _machine(),
        "commit": _commit(),
        "build": _build(),
        "settings": settings.as_json(),
    }


def _machine() -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "usable_cpus": usable_cpus(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        or "not reported",
        "virtual": "hypervisor" in _read("/proc/cpuinfo"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }


def _cpu() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _commit() -> dict[str, Any]:
    """The commit of the source tree; what is installed may be older, see the build."""
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    return {"id": head or "unknown", "dirty": bool(changed)}


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _build() -> dict[str, Any]:
    import pronk
    from pronk import _core

    devices = [f"{device.name}: {device.description}" for device in pronk.devices()]
    return {"pronk": _core.build_info(), "devices": devices}
