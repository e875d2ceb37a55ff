"""Random clusters of Cluster API that lose nodes, for the comparison in ``machines.py``.

A MachineHealthCheck marks the Machines. MachineSets and KubeadmControlPlane delete them in turn,
and the controller of Machines drains the nodes and deletes them.
"""

from __future__ import annotations

import base64
import functools
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.forecasts.outage import losses
from virt_admit.forecasts.outage import health_actors, machine_replacement
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.time_parts import NODE_GONE, detection

_NAMESPACE: Final = "c"
_BEGAN: Final = "2000-01-01T00:00:00Z"
"""When virtual time begins."""
_END: Final = 3_300
_SLACK: Final = 60
"""Seconds that the controllers of a loss take in all: each looks again after 5 s,
and drains after 20 s.
"""
_VERSION: Final = "v1.34.0"
_MASTER: Final = "cluster.x-k8s.io/control-plane"
_NAMES: Final = {"cluster.x-k8s.io/cluster-name": "c"}
_INFRASTRUCTURE: Final = "infrastructure.cluster.x-k8s.io"
_CORE, _CONTROL_PLANE = "cluster.x-k8s.io/v1beta2", "controlplane.cluster.x-k8s.io/v1beta2"


def replaced(seed: int) -> dict[str, Any]:
    """Return a cluster, which of its nodes are lost,
    and what holds up the owners of its Machines.
    """
    rng = random.Random(seed)
    masters = [f"cp-{number}" for number in range(rng.choice((1, 3, 3, 5)))]
    workers = [f"w-{number}" for number in range(rng.randint(2, 6))]
    lost = rng.sample(
        masters, min(len(masters) // 2 or rng.randint(0, 1), rng.choice((0, 0, 1, 1, 2)))
    )
    lost += rng.sample(
        workers,
        min(len(workers), rng.choice((0, 1, 1, 2, 3)) if lost else rng.choice((1, 1, 2, 3))),
    )
    control = _control_plane(rng, len(masters))
    deployment, machine_set = _machine_set(rng, len(workers))
    drains = rng.choice((None, None, None, 120, 900))
    for owner in (
        control["spec"]["machineTemplate"],
        deployment["spec"]["template"],
        machine_set["spec"]["template"],
    ):
        owner["spec"] |= {"deletion": {"nodeDrainTimeoutSeconds": drains}} if drains else {}
    made = [_machine(name, control, rng, drains) for name in masters]
    made += [_machine(name, machine_set, rng, drains) for name in workers]
    _disturb(made, control, lost, rng)
    objects = [
        *(_node(name, master=name in masters) for name in (*masters, *workers)),
        *(_cluster(rng), control, deployment, machine_set, *made),
        *(_check(pool, rng) for pool in ("masters", "workers")),
    ]
    vms = {
        name: [_vm(f"vm-{name}-{number}", rng) for number in range(rng.randint(0, 2))]
        for name in lost
    }
    return {
        "objects": objects,
        "lost": sorted(lost),
        "vms": vms,
        "provider": rng.choice((0, 0, 60, 240)),
    }


def _disturb(
    machines: list[losses.Manifest], control: losses.Manifest, lost: list[str], rng: random.Random
) -> None:
    """Let one Machine of the control plane be new, be deleted, or replace another one."""
    own = machines[rng.randrange(control["spec"]["replicas"])]
    chance = rng.random() if own["status"]["nodeRef"]["name"] not in lost else rng.uniform(0.2, 1)
    if chance < 0.1:
        own["status"] = {"conditions": []}
    elif chance < 0.2:
        own["metadata"] |= {"deletionTimestamp": _BEGAN}
    elif chance < 0.4:
        data = (
            f'{{"machine":"machine-x","timestamp":"1999-12-31T23:{rng.choice((10, 50))}:00Z",'
            '"retryCount":2}'
        )
        own["metadata"]["annotations"]["controlplane.cluster.x-k8s.io/remediation-for"] = data
        remediation = {"maxRetry": rng.choice((2, 3)), "retryPeriodSeconds": rng.choice((0, 1800))}
        control["spec"]["remediation"] = remediation | (
            {"minHealthyPeriodSeconds": 1200} if rng.random() < 0.3 else {}
        )


def _control_plane(rng: random.Random, replicas: int) -> losses.Manifest:
    upgrades = rng.random() < 0.15
    template = {
        "infrastructureRef": {"apiGroup": _INFRASTRUCTURE, "kind": _TEMPLATE, "name": "template"}
    }
    status = {
        "initialization": {"controlPlaneInitialized": True},
        "conditions": [_condition("Initialized", "True")],
        "version": _VERSION,
        "versions": [{"version": _VERSION, "replicas": replicas}],
        "replicas": replicas,
    }
    # one that upgrades is paused here, so that it goes on doing so
    metadata = {
        "annotations": {"cluster.x-k8s.io/paused": ""} if upgrades else {},
        "uid": "cp",
        "finalizers": ["kubeadm.controlplane.cluster.x-k8s.io"],
        "ownerReferences": [{"apiVersion": _CORE, "kind": "Cluster", "name": "c", "uid": "c"}],
    }
    spec = {
        "replicas": replicas,
        "version": "v1.35.0" if upgrades else _VERSION,
        "machineTemplate": {"spec": template},
    }
    return losses.manifest(
        _CONTROL_PLANE,
        "KubeadmControlPlane",
        "cp",
        _NAMESPACE,
        metadata=metadata,
        spec=spec,
        status=status,
    )


_CHECKS: Final = (
    "ControlPlaneIsStable",
    "KubeadmVersionSkew, KubernetesVersionSkew",
    "ControlPlaneVersionSkew",
)


def _machine_set(rng: random.Random, replicas: int) -> Iterator[losses.Manifest]:
    version = rng.choice((_VERSION, _VERSION, _VERSION, "v1.33.1", "v1.30.0"))
    joins = {"configRef": _CONFIG} if rng.random() < 0.5 else {"dataSecretName": "data"}
    inner = _machine_spec() | {"version": version, "bootstrap": joins}
    template = {"metadata": {"labels": _NAMES | {"pool": "workers"}}, "spec": inner}
    shared = {
        "clusterName": "c",
        "replicas": replicas,
        "selector": {"matchLabels": {"pool": "workers"}},
    }
    limit = rng.choice((None, None, None, 1, 2, "34%", 0))
    newer = rng.random() < 0.1
    revision = "machinedeployment.clusters.x-k8s.io/revision"
    yield losses.manifest(
        *(_CORE, "MachineDeployment", "workers", _NAMESPACE),
        metadata={
            "uid": "md",
            "annotations": {revision: "2" if newer else "1"},
            "labels": dict(_NAMES),
        },
        spec={**shared, "template": template}
        | ({} if limit is None else {"remediation": {"maxInFlight": limit}}),
    )
    skipped = rng.choice(("", "", "", "All", *_CHECKS))
    notes = {revision: "1"} | (
        {"machineset.cluster.x-k8s.io/skip-preflight-checks": skipped} if skipped else {}
    )
    yield losses.manifest(
        *(_CORE, "MachineSet", "workers-1", _NAMESPACE),
        metadata={
            **{"uid": "ms", "annotations": notes, "finalizers": ["cluster.x-k8s.io/machineset"]},
            "labels": _NAMES | {"cluster.x-k8s.io/deployment-name": "workers"},
            "ownerReferences": [_owner(_CORE, "MachineDeployment", "workers", "md")],
        },
        spec={**shared, "template": {"metadata": dict(template["metadata"]), "spec": dict(inner)}},
    )


_CONFIG: Final = {
    "apiGroup": "bootstrap.cluster.x-k8s.io",
    "kind": "KubeadmConfigTemplate",
    "name": "workers",
}


def _machine_spec(
    name: str = "template", kind: str = "GenericInfrastructureMachineTemplate"
) -> dict[str, Any]:
    reference = {"apiGroup": _INFRASTRUCTURE, "kind": kind, "name": name}
    return {
        **{"clusterName": "c", "version": _VERSION, "infrastructureRef": reference},
        "bootstrap": {"dataSecretName": "data"},
    }


def _machine(
    name: str, owner: losses.Manifest, rng: random.Random, drains: int | None
) -> losses.Manifest:
    is_set = owner["kind"] == "MachineSet"
    labels = _NAMES | {"pool": "workers" if is_set else "masters"}
    labels |= {"cluster.x-k8s.io/deployment-name": "workers"} if is_set else {_MASTER: ""}
    hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup"
    made = losses.manifest(
        *(_CORE, "Machine", f"machine-{name}", _NAMESPACE),
        metadata={
            **{
                "labels": labels,
                "uid": f"machine-{name}",
                "annotations": {} if is_set else {hook: ""},
            },
            "creationTimestamp": f"1999-12-0{rng.randint(1, 4)}T00:00:00Z",
            "finalizers": ["machine.cluster.x-k8s.io"],
            "ownerReferences": [
                _owner(
                    owner["apiVersion"],
                    owner["kind"],
                    owner["metadata"]["name"],
                    owner["metadata"]["uid"],
                )
            ],
        },
        spec={
            **_machine_spec(f"machine-{name}", "GenericInfrastructureMachine"),
            "providerID": f"generic://{name}",
        },
        status={"nodeRef": {"name": name}, "conditions": [_condition("EtcdMemberHealthy", "True")]},
    )
    if rng.random() < 0.1:  # by hand: its owner takes that back
        drains = 60
    made["spec"] |= {"deletion": {"nodeDrainTimeoutSeconds": drains}} if drains else {}
    return made


def _owner(version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}


def _condition(kind: str, status: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": "1999-12-30T00:00:00Z",
        "reason": "Test",
        "message": "",
    }


def _node(name: str, *, master: bool) -> losses.Manifest:
    made = losses.master(name) if master else losses.node(name)
    made["metadata"]["uid"] = name
    made["metadata"]["annotations"] = {"cluster.x-k8s.io/machine": f"machine-{name}"}
    made["spec"] = {**made.get("spec", {}), "providerID": f"generic://{name}"}
    made["status"]["conditions"] = [_condition("Ready", "True") | {"lastHeartbeatTime": _BEGAN}]
    return made


def _cluster(rng: random.Random) -> losses.Manifest:
    reference = {
        "apiGroup": "controlplane.cluster.x-k8s.io",
        "kind": "KubeadmControlPlane",
        "name": "cp",
    }
    spec = {"controlPlaneRef": reference, "controlPlaneEndpoint": {"host": "api", "port": 6443}}
    status = {
        "initialization": {"infrastructureProvisioned": True, "controlPlaneInitialized": True},
        "conditions": [
            _condition(kind, "True") for kind in ("InfrastructureReady", "ControlPlaneInitialized")
        ],
    }
    if rng.random() < 0.05:
        spec["paused"] = True
    if rng.random() < 0.1:
        version = rng.choice((_VERSION, "v1.35.0"))
        spec["topology"] = {"classRef": {"name": "class"}, "version": version}
    return losses.manifest(
        _CORE, "Cluster", "c", _NAMESPACE, metadata={"uid": "c"}, spec=spec, status=status
    )


def _check(pool: str, rng: random.Random) -> losses.Manifest:
    limit = rng.choice(("100%", "100%", "100%", "40%", 1))
    conditions = [{"type": "Ready", "status": "Unknown", "timeoutSeconds": rng.choice((60, 300))}]
    spec = {
        **{"clusterName": "c", "selector": {"matchLabels": {"pool": pool}}},
        "checks": {"unhealthyNodeConditions": conditions, "nodeStartupTimeoutSeconds": 1200},
        "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": limit}},
    }
    return losses.manifest(_CORE, "MachineHealthCheck", pool, _NAMESPACE, spec=spec)


def _vm(name: str, rng: random.Random) -> dict[str, Any]:
    tolerates, grace = rng.choice((300, 300, 60, 600, None)), rng.choice((0, 30, 180))
    strategy = rng.choice(("LiveMigrate", "LiveMigrate", "None"))
    return {"name": name, "strategy": strategy, "tolerates": tolerates, "grace": grace}


# --- what the program is asked --------------------------------------------------------------------

_TEMPLATE: Final = "GenericInfrastructureMachineTemplate"


def loss_of(given: Mapping[str, Any]) -> Loss:
    """Return the loss, as the forecast sees it before."""
    vms = [vm for node, some in given["vms"].items() for each in some for vm in _guest(node, each)]
    return Loss(tuple(given["lost"]), losses.snapshot(given["objects"], vms, version="v1.36.3"))


def _guest(node: str, vm: Mapping[str, Any]) -> list[losses.Manifest]:
    toleration = {
        "key": machine_replacement.UNREACHABLE,
        "operator": "Exists",
        "effect": "NoExecute",
    }
    if vm["tolerates"] is not None:
        toleration |= {"tolerationSeconds": vm["tolerates"]}
    return losses.vm(
        *(vm["name"], node),
        evictionStrategy=vm["strategy"],
        terminationGracePeriodSeconds=vm["grace"],
        tolerations=[] if vm["tolerates"] == 300 else [toleration],
    )


def asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``main.go`` is asked: the same cluster with what the forecast does not read."""
    loss = loss_of(given)
    pods = {node: [_pod(each, node, loss) for each in some] for node, some in given["vms"].items()}
    machines = [each["metadata"]["name"] for each in given["objects"] if each["kind"] == "Machine"]
    return {
        "owners": {
            "objects": [*given["objects"], *losses.NAMESPACES, *_background(machines)],
            "unknown": {name: detection(loss).low for name in given["lost"]},
            **{"pods": pods, "provider": given["provider"], "seconds": _END},
        }
    }


def _pod(vm: Mapping[str, Any], node: str, loss: Loss) -> dict[str, Any]:
    stays = loss.taint_delay(node) is None or vm["tolerates"] is None
    deleted = None if stays else detection(loss).low + vm["tolerates"]
    return {
        "name": vm["name"],
        "refused": vm["strategy"] != "None",
        "deleted": deleted,
        "grace": vm["grace"] + 30,
    }


_GROUPS: Final = {
    "GenericInfrastructureMachine": "infrastructure",
    _TEMPLATE: "infrastructure",
    "KubeadmConfig": "bootstrap",
    "KubeadmConfigTemplate": "bootstrap",
    "KubeadmControlPlane": "controlplane",
}


def _background(machines: list[str]) -> Iterator[losses.Manifest]:
    for kind in _GROUPS:
        group = _GROUPS[kind]
        name = f"{kind.lower()}s.{group}.cluster.x-k8s.io"
        labels = {"cluster.x-k8s.io/v1beta2": "v1beta2"}
        yield losses.manifest(
            "apiextensions.k8s.io/v1", "CustomResourceDefinition", name, metadata={"labels": labels}
        )
    version = "bootstrap.cluster.x-k8s.io/v1beta2"
    config = {"template": {"spec": {}}}
    yield losses.manifest(version, _CONFIG["kind"], _CONFIG["name"], _NAMESPACE, spec=config)
    version = f"{_INFRASTRUCTURE}/v1beta2"
    yield losses.manifest(
        version, _TEMPLATE, "template", _NAMESPACE, spec={"template": {"spec": {}}}
    )
    source = {
        "cluster.x-k8s.io/cloned-from-name": "template",
        "cluster.x-k8s.io/cloned-from-groupkind": f"{_TEMPLATE}.{_INFRASTRUCTURE}",
    }
    for name in machines:
        metadata = {"annotations": source, "finalizers": ["generic"], "labels": _NAMES}
        owner = [_owner(_CORE, "Machine", name, name)]
        metadata |= {"ownerReferences": owner}
        yield losses.manifest(
            version, "GenericInfrastructureMachine", name, _NAMESPACE, metadata=metadata, spec={}
        )
    data = {key: base64.b64encode(b"x").decode() for key in ("tls.crt", "tls.key", "value")}
    for purpose in ("ca", "etcd", "sa", "proxy", "kubeconfig"):
        kind = {
            "type": "Opaque" if purpose == "kubeconfig" else "cluster.x-k8s.io/secret",
            "data": data,
        }
        yield losses.manifest(
            "v1", "Secret", f"c-{purpose}", _NAMESPACE, metadata={"labels": _NAMES}, **kind
        )


# --- the comparison -------------------------------------------------------------------------------


def differences(given: Mapping[str, Any], owned: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what was compared of each lost node, and the disagreement; empty if there is none.

    Cluster API also awaits the end of pods that were being deleted before, which the forecast
    leaves out.
    """
    loss = loss_of(given)
    limited = any(
        each["kind"] == "MachineDeployment" and "remediation" in each["spec"]
        for each in given["objects"]
    )
    for node in given["lost"]:
        machine = f"machine-{node}"
        (actor,) = health_actors.coverage(node, loss).actors
        pod = functools.partial(_pod, node=node, loss=loss)
        gone, said = owned["gone"].get(node), owned["said"].get(machine, "")
        owner = "KubeadmControlPlane" if node.startswith("cp-") else "MachineSet"
        theirs = (
            f"{node} gone after {gone}, deletion after {owned['deleted'].get(machine)} ({said})"
        )
        if loss.stopped:
            yield "the API stops", ""
        elif actor.unseen:
            yield f"{owner}: cannot be determined, {'stays' if gone is None else 'replaced'}", ""
        elif actor.refuses:
            yield f"{owner}: never", "" if gone is None else f"{theirs}, although {actor.refuses}"
        else:
            least = (actor.at.low if actor.at else 0) - NODE_GONE.low
            awaited = [
                each["deleted"] + each["grace"]
                for each in map(pod, given["vms"][node])
                if each["deleted"]
            ]
            most = _END if limited else max(least, *awaited, 0) + given["provider"] + _SLACK
            agrees = gone is not None and least - 1 <= gone <= most
            yield f"{owner}: replaced", "" if agrees else f"{theirs}, not {least} to {most}"
