"""Pods as the webhook keeps them: what placement and the etcd rule read of a pod,
in a few hundred bytes.

A cluster has tens of thousands of pods, and their containers and statuses are most of their text.
Requests and limits are therefore summed up while a pod is stored. The result is again a pod with
the same requests, labels and claims.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances.cpu_models import TARGET
from virt_admit.model.kubevirt.launcher.launcher_pod import CPU_FEATURE, NAME
from virt_admit.model.scheduler import pod_size
from virt_admit.model.scheduler.pod_terms import REQUIRED
from virt_admit.model.scheduler.resources import CPU, Resources, pod_requests

_LIMITED: Final = (CPU, "memory", "ephemeral-storage")
"""Resources of which a quota can limit the limits (k8s.io/kubernetes
pkg/quota/v1/evaluator/core/pods.go).
"""


def summarize(pod: dict[str, Any]) -> dict[str, Any] | None:
    """Return a pod with what placement reads; None for a finished pod, which holds nothing.

    Affinity that is only preferred, node affinity, topology spread and the usual tolerations of a
    pod that runs already restrict no other pod. Its node selector counts where it tells which CPU a
    migrating VM needs.
    """
    whole = Object(pod)
    if whole.ended:
        return None
    labels = whole.at("metadata", "labels").texts
    parts = {
        "metadata": _filled(
            {**whole["metadata"].map, "ownerReferences": list(_owners(whole["metadata"], labels))}
        ),
        "spec": _filled(dict(_spec(whole["spec"], whole["status"]))),
        "status": _filled(dict(_status(whole["status"], labels))),
    }
    return {**{key: pod[key] for key in ("apiVersion", "kind") if key in pod}, **_filled(parts)}


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}


def _owners(metadata: Field, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the VMI that owns a launcher pod, unless a label has its name already."""
    for owner in metadata["ownerReferences"].items():
        if owner["kind"].text == "VirtualMachineInstance" and owner["name"].text != labels.get(
            NAME
        ):
            yield {key: owner[key].value for key in ("kind", "name")}


def _spec(spec: Field, status: Field) -> Iterator[tuple[str, Any]]:
    yield "nodeName", spec["nodeName"].value
    yield "priority", spec["priority"].value
    yield "preemptionPolicy", "Never" if spec["preemptionPolicy"].text == "Never" else None
    limits = {key: n for key, n in pod_size.read(spec).limits.items() if n and key in _LIMITED}
    requests = {key: n for key, n in pod_requests(spec, status).items() if n}
    # A request of 0 is written where there is a limit, which would be the request without it.
    requests = dict.fromkeys(limits, 0) | requests
    resources = _filled({"requests": _quantities(requests), "limits": _quantities(limits)})
    yield "containers", [{"resources": resources}] if resources else None
    yield (
        "affinity",
        _filled(
            {
                kind: _required(spec.at("affinity", kind))
                for kind in ("podAffinity", "podAntiAffinity")
            }
        ),
    )
    yield (
        "nodeSelector",
        {k: v for k, v in spec["nodeSelector"].texts.items() if CPU_FEATURE in k or TARGET in k},
    )
    yield "tolerations", [item.value for item in spec["tolerations"].items() if not _is_usual(item)]
    yield "volumes", [volume.value for volume in spec["volumes"].items() if volume.value]


def _quantities(amounts: Resources) -> dict[str, Any]:
    return {name: f"{value}m" if name == CPU else value for name, value in amounts.items()}


def _required(affinity: Field) -> dict[str, Any]:
    return _filled({REQUIRED: affinity[REQUIRED].value})


def _is_usual(toleration: Field) -> bool:
    """Return whether the API server, KubeVirt or the DaemonSet controller adds the toleration to
    pods.
    """
    return (toleration["key"].text or "").startswith("node.kubernetes.io/")


def _status(status: Field, labels: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    phase = status["phase"].value
    yield "phase", None if phase == "Running" else phase
    if labels.get("kubevirt.io") != "virt-launcher":
        yield (
            "conditions",
            [item.value for item in status["conditions"].items() if item["type"].text == "Ready"],
        )


_USUAL: Final = (
    b'"priority":2000001000,"preemptionPolicy":"Never","phase":"Pending","effect":"NoExecute",'
    b'"operator":"Exists","key":"tolerations":[{"conditions":[{"type":"Ready",'
    b'"status":"True"}]}"podAffinity":{"volumes":[{"ephemeral":{},"name":"limits":{"cpu":"100m",'
    b'"memory":"ownerReferences":[{"kind":"VirtualMachineInstance",'
    b'"name":"k8s-app":"app.kubernetes.io/instance":""app.kubernetes.io/name":"app.kubernetes.io/'
    b'component":"pod-template-hash":"controller-revision-hash":""affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{"matchExpressions":[{"key":"kubevirt.io/'
    b'created-by","operator":"In","values":["matchLabels":{"topologyKey":"kubernetes.io/'
    b'hostname"}]}}{"spec":{"nodeName":"worker-0.example.com",'
    b'"containers":[{"resources":{"requests":{"devices.kubevirt.io/kvm":1,"devices.kubevirt.io/'
    b'tun":1,"devices.kubevirt.io/vhost-net":1,"cpu":"100m","memory":2147483648,'
    b'"ephemeral-storage":50000000}}}],"nodeSelector":{"cpu-feature.node.kubevirt.io/":"true",'
    b'"cpu-model-migration.node.kubevirt.io/":"true"},'
    b'"volumes":[{"persistentVolumeClaim":{"claimName":""}}]},'
    b'"metadata":{"labels":{"kubevirt.io":"virt-launcher","kubevirt.io/created-by":"","kubevirt.io/'
    b'nodeName":"vm.kubevirt.io/name":"","vmi.kubevirt.io/id":"","app":""}}}'
)
"""Text that most kept pods share: a preset dictionary of zlib. The most frequent is last, where
references are short.
"""

_WINDOW: Final = -12
"""Raw deflate with 4 KiB: the dictionary and one pod."""


def compress(text: bytes) -> bytes:
    """Return the text of a summarized pod in about half of its size."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, _WINDOW, 5, zlib.Z_DEFAULT_STRATEGY, _USUAL)
    return deflate.compress(text) + deflate.flush()


def decompress(packed: bytes) -> bytes:
    """Return the text that was compressed; 5 microseconds."""
    return zlib.decompressobj(_WINDOW, _USUAL).decompress(packed)
