"""Checks of what judges the whole cluster: the watch, or the hourly scan."""

from __future__ import annotations

from collections.abc import Iterator

from virt_admit.install.inspect import Installation
from virt_admit.install.manifests import SCAN, WATCHER
from virt_admit.install.observations import Outcome, Status
from virt_admit.settings import NAMESPACE


def check_sweeps(installation: Installation) -> Iterator[Outcome]:
    """Yield whether the watch runs if it is installed,
    and whether the scan does the same work again.
    """
    watch = installation.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{WATCHER}")
    if watch is None:
        return
    if not (watch.get("status") or {}).get("readyReplicas"):
        problem = "the watch has no ready replica"
        text = f"{problem}: its metrics, reports and Events are outdated or missing"
        yield Status.NOTE, text, f"kubectl -n {NAMESPACE} logs deployment/{WATCHER}"
    scan = installation.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/{SCAN}")
    if scan is not None and not (scan.get("spec") or {}).get("suspend"):
        text = "the watch and the hourly scan are both installed and judge the same objects"
        yield Status.NOTE, text, f"keep the watch: kubectl -n {NAMESPACE} delete cronjob {SCAN}"
