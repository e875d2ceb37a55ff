"""A file that a container cannot write as a process of its node runs it (ETXTBSY).

The kernel refuses to write a file while it is executed. A rename is allowed: the process keeps its
file, and the name is free. So a network plugin that waits for its daemon keeps an init container
from writing the plugin, before which the daemon does not start. Other programs are not
touched: a kubelet without its file does not start again. Sources: open(2);
k8snetworkplumbingwg/multus-cni issue 1221, pull request 1213.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.commands import and_then, kubectl, shell, typed
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Field, Object

_BUSY: Final = re.compile(r"(?P<quote>['\"`‘]?)(/[\w./@+-]{1,250})['\"`’]?: text file busy", re.I)
_PLUGINS: Final = re.compile(r"/(?:cni|kubelet-plugins|kubelet/plugins)/")
"""Directories of plugins alone: each call starts one again."""


def remedy(pod: Object, container: str, said: str) -> str:
    """Return what lets a container write such a file, with a command; empty: it says nothing of
    one, the file is not of a plugin, or the pod has no node.

    ``said``: its last words.
    """
    found, node = _BUSY.search(said), pod.at("spec", "nodeName").text
    if found is None or not node:
        return ""
    inner = found[2]
    path = _on_host(pod, container, inner)
    shown = inner if path is None else path
    if ".." in shown.split("/") or not _PLUGINS.search(shown):
        return ""
    seen = " (as the pod sees it)" if path is None else ""
    way = f"on {node}, rename (mv) {shown}{seen}, which a process there still runs"
    # a debug pod of a node has its files below /host
    inside = ("sh",) if path is None else ("chroot", "/host", "mv", path, f"{path}.old")
    root = ("kubectl", "debug", f"node/{node}", "-it", "--image=busybox", "--profile=sysadmin")
    delete = kubectl("delete", POD, pod.name, pod.namespace)
    return and_then(typed(way, shell(*root, "--", *inside)), f"delete pod {pod.name}", delete)


def _on_host(pod: Object, container: str, path: str) -> str | None:
    """Return the path on its node of a file that a container sees; empty: it is not there, or not
    known to be; None: the mounts of the container are not known.

    A deeper mount hides what a higher one has.
    """
    mounts = [
        mount
        for kind in ("initContainers", "containers")
        for box in pod.at("spec", kind).items()
        if box["name"].text == container
        for mount in box["volumeMounts"].items()
    ]
    if not mounts:
        return None
    above = [mount for mount in mounts if path.startswith(_directory(mount["mountPath"]))]
    if not above:
        return ""
    deepest = max(above, key=lambda mount: len(_directory(mount["mountPath"])))
    volumes = {
        each["name"].text: each.at("hostPath", "path") for each in pod.at("spec", "volumes").items()
    }
    outer = volumes.get(deepest["name"].text)
    if outer is None or not outer.text or deepest["subPathExpr"].present:
        return ""
    rest = path.removeprefix(_directory(deepest["mountPath"]))
    part = (deepest["subPath"].text or "").strip("/")
    return f"{_directory(outer)}{part}{'/' * bool(part)}{rest}"


def _directory(path: Field) -> str:
    return f"{(path.text or '').rstrip('/')}/"
