"""Random health checks, remediators and maintenances, each with a cluster,
for the comparison in ``health.py``.

An object begins valid. Up to three of its fields then get a value of their kind that may be odd:
nulls of empty Helm values, numbers as text, durations without a unit, unknown operators.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tests.model.remediation.health_check_reviews import (
    CAPI_V1BETA1,
    CAPI_V1BETA2,
    MHC,
    NHC,
    changed,
)
from tests.upstream.health_clusters import Json, cluster_of

_TIMES: Final = ("5m", "300s", "10m", "1h", "90s", "0s", "0", "5s", "1.5h", "-5m", "abc5m", "5", "",
                 "9999999h", "1d", "5 m",
                 300, None, True, "00", "+5m", "1h1h", "5m0.5s", ".5m", "5\u00b5s",
                 "5m\n")  # fmt: skip
_SECONDS: Final = (300, 600, 60, 30, 29, 0, -1, 2**31, 2**31 - 1, "300", 1.5, None, True, 1.0)
_LIMITS: Final = (1, 2, 3, 0, -1, "40%", "49%", "0%", "100%", "101%", "3", "x", "", 2**31, 2**32,
                  1.5, None, True, "007", "00%",
                  "040%", "-1", "-5%", "40 %", "99999999999999999999")  # fmt: skip
_RANGES: Final = (
    "[1-2]",
    "[0-0]",
    "[0-5]",
    "[2-1]",
    "[3-9]",
    "1-2",
    "[1-]",
    "[1-4294967296]",
    "",
    3,
    None,
    "[01-02]",
    "[1-2]\n",
)
_TYPES: Final = (
    "Ready",
    "DiskPressure",
    "Terminating",
    "KernelDeadlock",
    "ready",
    "NotReady",
    "",
    5,
    None,
)
_STATUSES: Final = ("False", "Unknown", "True", "false", "", False, None, "Bad")
_MACHINE_TYPES: Final = ("NodeHealthy", "InfrastructureReady", "Ready", "Available",
                         "OwnerRemediated", "Worn", "", "a b", None,
                         "ExternallyRemediated", "HealthCheckSucceeded")  # fmt: skip
_SELECTORS: Final[Sequence[Any]] = (
    {"matchLabels": {"pool": "a"}},
    {"matchLabels": {"pool": "b"}},
    {"matchLabels": {"pool": None}},
    {"matchLabels": {"pool": "a", "role": None}},
    {"matchLabels": {"pool": "<role>"}},
    {"matchLabels": {"pool a": "x"}},
    {"matchLabels": {"pool": 5}},
    {"matchLabels": {"pool": ""}},
    {"matchLabels": {"cluster.x-k8s.io/cluster-name": "c", "pool": "a"}},
    {"matchLabels": {"cluster.x-k8s.io/cluster-name": "d"}},
    {"matchLabels": {}},
    {"matchLabels": None},
    {"matchLabels": ["pool"]},
    {"matchExpressions": []},
    {"matchExpressions": None},
    {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]},
    {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a"]}]},
    {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]},
    {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist", "values": []}]},
    {"matchExpressions": [{"key": "pool", "operator": "Exists", "values": None}]},
    {"matchExpressions": [{"key": "pool", "operator": "Exists", "values": ["a"]}]},
    {"matchExpressions": [{"key": "pool", "operator": "In", "values": []}]},
    {"matchExpressions": [{"key": "pool", "operator": "In", "values": [None]}]},
    {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a b"]}]},
    {"matchExpressions": [{"key": "pool", "operator": "in", "values": ["a"]}]},
    {"matchExpressions": [{"key": "pool", "operator": None}]},
    {"matchExpressions": [{"key": "pool"}]},
    {"matchExpressions": [{"operator": "Exists"}]},
    {"matchExpressions": [None]},
    {"matchExpressions": ["pool"]},
    {"matchLabels": {"pool": "a"}, "matchExpressions": [{"key": "role", "operator": "Exists"}]},
    {"pool": "a"},
    {},
    None,
    ...,
    "pool=a",
)  # fmt: skip
_REFERENCES: Final[Sequence[Any]] = (
    {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
     "kind": "SelfNodeRemediationTemplate", "name": "auto",
     "namespace": "medik8s"},
    {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
     "kind": "SelfNodeRemediationTemplate", "name": "auto"},
    {"apiVersion": "machine-deletion-remediation.medik8s.io/v1alpha1",
     "kind": "MachineDeletionRemediationTemplate",
     "name": "mdr", "namespace": "medik8s"},
    {"apiVersion": "r.io/v1", "kind": "RTemplate", "name": "r", "namespace": "medik8s"},
    {"apiVersion": "r.io/v1", "kind": "R", "name": "r", "namespace": "medik8s"},
    {"apiVersion": "r.io/v1", "kind": "Template", "name": "r"},
    {"kind": "RTemplate", "name": "r"},
    {"apiVersion": "r.io/v1", "kind": "RTemplate", "name": ""},
    {"apiVersion": "r.io/v1", "kind": "rTemplate", "name": "A_b"},
    {"apiVersion": 5, "kind": "RTemplate", "name": "r"},
    {},
    None,
    ...,
)  # fmt: skip


def _pick(values: Sequence[Any]) -> Callable[[random.Random], Any]:
    return lambda rng: copy.deepcopy(rng.choice(values))


def _conditions(
    time: str, times: Sequence[Any], types: Sequence[Any] = _TYPES
) -> Callable[[random.Random], Any]:
    def make(rng: random.Random) -> Any:
        if rng.random() < 0.15:
            return rng.choice(([], None, ..., {}, [None], ["Ready"]))
        entries = []
        for _ in range(rng.randint(1, 3)):
            odd = rng.random() < 0.4
            entry = {
                "type": rng.choice(types if odd else types[:3]),
                "status": rng.choice(_STATUSES if odd else _STATUSES[:2]),
            }
            entry[time] = rng.choice(times if odd else times[:3])
            if rng.random() < 0.1:
                del entry[rng.choice(list(entry))]
            entries.append(entry)
        return entries

    return make


def _steps(rng: random.Random) -> Any:
    if rng.random() < 0.2:
        return rng.choice(([], None, ..., {}, [None]))
    return [
        {
            "remediationTemplate": copy.deepcopy(rng.choice(_REFERENCES[:6])),
            "order": rng.choice((1, 2, 3, 0, -1, 1, "1", None)),
            "timeout": rng.choice(_TIMES),
        }
        for _ in range(rng.randint(1, 3))
    ]


Fields = Mapping[str, Callable[[random.Random], Any]]

_MHC_FIELDS: Final[Fields] = {
    "spec.selector": _pick(_SELECTORS),
    "spec.unhealthyConditions": _conditions("timeout", _TIMES),
    "spec.maxUnhealthy": _pick((*_LIMITS, ...)),
    "spec.nodeStartupTimeout": _pick((*_TIMES, ...)),
    "spec.remediationTemplate": _pick(_REFERENCES),
}
_CAPI_FIELDS: Final[Fields] = {
    **_MHC_FIELDS,
    "spec.clusterName": _pick(("c", "d", "", None, ..., 5, "x" * 64)),
    "spec.unhealthyRange": _pick((*_RANGES, ...)),
    "spec.unhealthyMachineConditions": _conditions("timeout", _TIMES, _MACHINE_TYPES),
}
_CAPI_V1BETA2_FIELDS: Final[Fields] = {
    "spec.selector": _pick(_SELECTORS),
    "spec.clusterName": _pick(("c", "d", "", None, ..., 5, "x" * 64)),
    "spec.checks": _pick(
        ({}, None, ..., {"nodeStartupTimeoutSeconds": 600}, {"unhealthyConditions": []})
    ),
    "spec.checks.unhealthyNodeConditions": _conditions("timeoutSeconds", _SECONDS),
    "spec.checks.unhealthyMachineConditions": _conditions(
        "timeoutSeconds", _SECONDS, _MACHINE_TYPES
    ),
    "spec.checks.nodeStartupTimeoutSeconds": _pick((*_SECONDS, ...)),
    "spec.remediation": _pick(({}, None, ..., {"triggerIf": {}}, {"triggerIf": None})),
    "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo": _pick((*_LIMITS, ...)),
    "spec.remediation.triggerIf.unhealthyInRange": _pick((*_RANGES, ...)),
    "spec.remediation.templateRef": _pick(_REFERENCES),
}
_NHC_FIELDS: Final[Fields] = {
    "spec.selector": _pick(_SELECTORS),
    "spec.unhealthyConditions": _conditions("duration", _TIMES),
    "spec.minHealthy": _pick((*_LIMITS, ...)),
    "spec.maxUnhealthy": _pick((*_LIMITS, ...)),
    "spec.remediationTemplate": _pick(_REFERENCES),
    "spec.escalatingRemediations": _steps,
    "spec.pauseRequests": _pick((["upgrade"], [], [""], None, "upgrade", [5])),
    "spec.stormCooldownDuration": _pick(_TIMES),
    "spec.healthyDelay": _pick(_TIMES),
}
_TEXTS: Final = ("{{.NodeName}}", "{{ .NodeName }}", "{{NodeName}}", "{{}}", "{{end}}",
                 "{{.Nodename}}", "10.0.0.1", "{{", "",
                 "{{.NodeName | printf \"%s\"}}", "{{.NodeName | quote}}", "{{- .NodeName -}}",
                 "{{.NodeName}", None, 5,
                 "{{if .NodeName}}x{{end}}", "{{printf \"%s.bmc\" .NodeName}}", "{{.}}",
                 "{{/* c */}}", "{{.NodeName.X}}",
                 "{{with .NodeName}}{{.}}{{end}}", "{{if eq .NodeName \"a\"}}1{{else}}2{{end}}",
                 "{{len .NodeName}}",
                 "{{index .NodeName 0}}", "{{index .NodeName 90}}", "{{$x := .NodeName}}{{$x}}",
                 "{{$x}}", "{{.NodeName | }}",
                 "{{range .NodeName}}x{{end}}", "{{template \"x\"}}", "{{\"a\"}}", "{{`a`}}",
                 "{{1}}", "}}", "{{.NodeName}}}}",
                 "{{slice .NodeName 0 3}}", "{{.NodeName 1}}", "{{(.NodeName)}}", "{{print}}",
                 "{{nil}}")  # fmt: skip


def _parameters(rng: random.Random) -> Any:
    if rng.random() < 0.15:
        return rng.choice(({}, None, ..., [], "--ip"))
    found = {rng.choice(("--ip", "--username", "ip")): rng.choice(_TEXTS)}
    if rng.random() < 0.3:
        found[rng.choice(("--action", "action"))] = rng.choice(
            ("reboot", "off", "on", "", None, "Reboot")
        )
    return found


_FAR_FIELDS: Final[Fields] = {
    "spec.template.spec.agent": _pick(("fence_ipmilan", "fence_", "ipmilan", "", None, ..., 5,
                                       "x_fence_a", "fence_a/../x")),
    "spec.template.spec.sharedparameters": _parameters,
    "spec.template.spec.nodeparameters": _pick(
        ({"--ip": {"n0": "1"}}, {"--ip": {}}, {"--ip": None}, {}, None, ..., {"--ip": "1"},
         {"--ip": {"n0": None}},
         {"--action": {"n0": "status"}}, {"--ip": {"n0": 1}})
    ),
    "spec.template.spec.retrycount": _pick((5, 1, 0, -1, "3", None, 1.5, True, 2**40, ...)),
    "spec.template.spec.retryinterval": _pick((*_TIMES, ...)),
    "spec.template.spec.timeout": _pick((*_TIMES, ...)),
    "spec.template.spec.remediationStrategy": _pick(("ResourceDeletion", "OutOfServiceTaint",
                                                     "Automatic", "", None, 5, ...)),
    "spec.template.spec.nodeSecretNames": _pick(({"n0": "s"}, {}, None, {"n0": None}, {"n0": 5},
                                                 ...)),
    "spec.template.spec.sharedSecretName": _pick(("s", "", None, 5, ...)),
    "spec.template.spec": _pick(({}, None, ...)),
    "spec.template": _pick(({}, None, ..., "x")),
    "spec.statusValidationSample": _pick((*_LIMITS, ...)),
}  # fmt: skip
_SNR_FIELDS: Final[Fields] = {
    "spec.template.spec.remediationStrategy": _pick(
        ("Automatic", "ResourceDeletion", "OutOfServiceTaint", "NodeDeletion", "", None, 5, ...)
    ),
    "spec.template.spec": _pick(({}, None, ..., "x")),
    "spec.template": _pick(({}, None, ..., "x")),
    "spec": _pick(({}, None, ...)),
}
_TOLERATIONS: Final[Sequence[Any]] = (
    [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}], [{"operator": "Exist"}],
    [{"operator": "Exists", "value": "x"}],
    [{"effect": "No"}], [{"key": "a b"}], [{"operator": "Lt", "key": "a", "value": "5"}], [None],
    {}, None, [{}], [5],
    [{"tolerationSeconds": "5"}], [{"tolerationSeconds": 5}],
    [{"operator": "Exists", "value": None}],
)  # fmt: skip
_REQUIREMENTS: Final[Sequence[Any]] = (
    [{"key": "a", "operator": "Exists"}], [{"key": "a", "operator": "In", "values": ["b"]}],
    [{"key": "", "operator": "Exists"}],
    [{"key": "a", "operator": "in"}], [{"key": "a", "operator": "In", "values": []}],
    [{"key": "a"}], [{"operator": "Exists"}],
    [{"key": "a", "operator": "Exists", "values": ["b"]}],
    [{"key": "a", "operator": "Gt", "values": ["5"]}],
    [{"key": "a", "operator": "Lt", "values": ["x"]}],
    [{"key": "a", "operator": "Gt", "values": ["5", "6"]}],
    [{"key": "a", "operator": "Gt", "values": ["+5"]}],
    [{"key": "a", "operator": "Gt", "values": [" 5"]}],
    [{"key": "a", "operator": "Gt", "values": [5]}], [None], {}, None, [{}],
    [{"key": "a b", "operator": "Exists"}],
)  # fmt: skip
_SNRC_FIELDS: Final[Fields] = {
    **{f"spec.{name}": _pick((*_TIMES, "9ms", "10ms", "1s", "999ms", "10s", "9s", ...))
       for name in ("peerApiServerTimeout", "apiServerTimeout", "peerDialTimeout",
                    "peerRequestTimeout", "apiCheckInterval",
                    "peerUpdateInterval")},
    "spec.maxApiErrorThreshold": _pick((3, 1, 0, -1, "3", None, 1.5, True)),
    "spec.hostPort": _pick((30001, 1, 0, -1, 65535, 65536, "30001", None, 1.5, True)),
    "spec.watchdogFilePath": _pick(("/dev/watchdog", "", None, 5, "dev")),
    "spec.safeTimeToAssumeNodeRebootedSeconds": _pick((180, 0, -1, "180", None, 1.5, True, 2**31)),
    "spec.isSoftwareRebootEnabled": _pick((True, False, "true", "false", 1, 0, None)),
    "spec.endpointHealthCheckUrl": _pick(("http://x", "", None, 5)),
    "spec.minPeersForRemediation": _pick((1, 0, -1, "1", None)),
    "spec.customDsTolerations": _pick(_TOLERATIONS),
    "spec.customDsNodeSelectorRequirements": _pick(_REQUIREMENTS),
    "metadata.name": _pick(("self-node-remediation-config", "other")),
    "spec": _pick(({}, None, ...)),
}  # fmt: skip
_NM_FIELDS: Final[Fields] = {
    "spec.nodeName": _pick(("n0", "n9", "", None, ..., 5, "N0")),
    "spec.reason": _pick(("disk", "", None, 5, ["x"], ...)),
    "spec": _pick(({}, None, ...)),
}
_MDR_FIELDS: Final[Fields] = {
    "spec.template.spec": _pick(({}, None, ..., "x")),
    "spec.template": _pick(({}, None, ..., "x")),
    "spec": _pick(({}, None, ...)),
}


def _remediator(group: str, kind: str, name: str = "auto", **spec: Any) -> Json:
    metadata = {"name": name, "namespace": "medik8s"}
    return {
        "apiVersion": f"{group}.medik8s.io/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def _maintenance(group: str) -> Json:
    spec = {"nodeName": "n0", "reason": "disk"}
    return {
        "apiVersion": f"{group}/v1beta1",
        "kind": "NodeMaintenance",
        "metadata": {"name": "m"},
        "spec": spec,
    }


def _in_pool(check: Json) -> Json:
    """Return a valid check whose selector matches some objects of the random clusters."""
    found = changed(check, "spec.selector", {"matchLabels": {"pool": "a"}})
    if "clusterName" in found["spec"]:
        found["spec"]["clusterName"], found["metadata"]["namespace"] = "c", "c"
    return found


_FAR_SPEC: Final = {
    "agent": "fence_ipmilan",
    "sharedparameters": {"--ip": "{{.NodeName}}", "--username": "a"},
}
_STRATEGY: Final = {"remediationStrategy": "ResourceDeletion"}

KINDS: Final[Sequence[tuple[int, Json, Fields]]] = (
    (4, _in_pool(MHC), _MHC_FIELDS),
    (3, _in_pool(CAPI_V1BETA1), _CAPI_FIELDS),
    (5, _in_pool(CAPI_V1BETA2), _CAPI_V1BETA2_FIELDS),
    (4, _in_pool(NHC), _NHC_FIELDS),
    (
        4,
        _remediator(
            "fence-agents-remediation",
            "FenceAgentsRemediationTemplate",
            template={"spec": _FAR_SPEC},
        ),
        _FAR_FIELDS,
    ),
    (
        1,
        _remediator(
            "self-node-remediation", "SelfNodeRemediationTemplate", template={"spec": _STRATEGY}
        ),
        _SNR_FIELDS,
    ),
    (
        3,
        _remediator(
            "self-node-remediation", "SelfNodeRemediationConfig", "self-node-remediation-config"
        ),
        _SNRC_FIELDS,
    ),
    (
        1,
        _remediator(
            "machine-deletion-remediation",
            "MachineDeletionRemediationTemplate",
            template={"spec": {}},
        ),
        _MDR_FIELDS,
    ),
    (1, _maintenance("nodemaintenance.medik8s.io"), _NM_FIELDS),
    (1, _maintenance("nodemaintenance.kubevirt.io"), _NM_FIELDS),
)
"""How often a kind is drawn, a valid object of it, and its fields."""


def case(seed: int) -> Json:
    """Return a random object, its old state for some updates, and a cluster,
    as the program reads them.
    """
    rng = random.Random(seed)
    _, base, fields = rng.choices(KINDS, [weight for weight, *_ in KINDS])[0]
    obj = copy.deepcopy(base)
    for path in rng.sample(sorted(fields), rng.choice((0, 1, 1, 1, 2, 3))):
        _assign(obj, path, fields[path](rng))
    old = None
    if "clusterName" in base["spec"] and rng.random() < 0.1:
        old = changed(base, "spec.clusterName", rng.choice("cd"))
    return {"object": obj, "old": old, "cluster": cluster_of(rng, base)}


def _assign(obj: Json, path: str, value: Any) -> None:
    """Set a field; nothing if another value already replaced one of its parents."""
    *parents, last = path.split(".")
    at: Any = obj
    for step in parents:
        at = at.setdefault(step, {}) if isinstance(at, dict) else None
    if not isinstance(at, dict):
        return
    if value is ...:
        at.pop(last, None)
    else:
        at[last] = value
