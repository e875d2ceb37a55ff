"""An API server that has the definitions of all kinds from its start.

To install them takes kube-apiserver twice the processor time of its start: it merges its OpenAPI
documents again for each. So this is done once, and every such server begins with a copy of what
etcd stored then.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path

from tests.apiserver.binaries import Binaries
from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import definitions_of, install_crds


def prepared(found: Binaries) -> Path:
    """Return the data directory of etcd, one for each release and each content of the definitions.

    Raises as ``install_crds``.
    """
    programs = [(str(each), each.stat().st_mtime_ns) for each in (found.etcd, found.kube_apiserver)]
    key = hashlib.sha256(json.dumps([programs, definitions_of()]).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "virt-admit"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"stored-{key}"
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with ControlPlane(found) as plane:
                install_crds(plane)
                plane.copy_stored(unfinished := folder.with_name(f"{folder.name}.{os.getpid()}"))
            unfinished.rename(folder)
    return folder
