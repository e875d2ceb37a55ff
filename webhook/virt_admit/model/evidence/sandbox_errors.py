"""What ends that a kubelet cannot make the sandbox of a pod, by the words of its container runtime.

Sources: containernetworking/cni:pkg/invoke/find.go#FindInPath; containerd/containerd:
pkg/cri/config/runtime.go (no runtime for), pkg/cri/server/sandbox_run.go (sandbox image),
containerd/go-cni:errors.go (cni plugin not initialized).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from virt_admit.model.commands import pods_on, typed

_BEGIN: Final = re.compile(r"Failed to create pod sandbox: ", re.IGNORECASE)
_NAME: Final = r"\\?\"([\w./:@-]{1,250}?)\\?\""
_WAYS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str], str]], ...]] = (
    (
        re.compile(rf"failed to find plugin {_NAME} in path \[([\w./ -]{{1,200}})\]"),
        lambda found, node: (
            f"install network plugin {found[1]} in {found[2]} on {node}, as the DaemonSet of that "
            "network does when its pod there starts"
        ),
    ),
    (
        re.compile(rf"no runtime for {_NAME} is configured"),
        lambda found, node: (
            f"configure {found[1]} in the container runtime of {node}, or keep pods of that "
            "RuntimeClass off it by its scheduling.nodeSelector"
        ),
    ),
    (
        re.compile(rf"failed to (?:get|pull) sandbox image {_NAME}"),
        lambda found, node: (
            f"let {node} pull image {found[1]}, or set the sandbox image of its container runtime "
            "to one that it has"
        ),
    ),
    (
        re.compile(r"cni (?:plugin not initialized|config uninitialized)"),
        lambda _found, node: (
            f"repair the pod network on {node}: its container runtime finds no configuration in "
            "/etc/cni/net.d"
        ),
    ),
)


def remedy(said: str, node: str) -> str:
    """Return what ends an error, with a command; empty: it is not about the sandbox of a pod."""
    if not node or not _BEGIN.match(said):
        return ""
    way = known(said, node) or f"correct on {node} what its container runtime says there"
    return typed(way, pods_on(node))


def known(said: str, node: str) -> str:
    """Return what ends an error whose words are known, in words; empty: they are not."""
    found = ((pattern.search(said), way) for pattern, way in _WAYS)
    return next((way(match, node) for match, way in found if match is not None), "")
