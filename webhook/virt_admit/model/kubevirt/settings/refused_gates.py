"""What virt-api says that KubeVirt lacks when it refuses an object: a feature gate, or a setting
that is off. The object itself is right.

virt-api names most gates as they are written, and some in its own words. HyperConverged writes the
gates of KubeVirt: it has some itself, and takes all others as a JSON patch. Sources:
kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/vmi-create-admitter.go,
:pkg/network/admitter, :pkg/dra/admitter/dra_admitter.go,
:pkg/virt-config/featuregate/feature-gates.go#IsEnabled;
kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt.go#getFeatureGateChecks,
:docs/cluster-configuration.md (JSON patch annotations).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.model import releases
from virt_admit.model.commands import about, json_patch, kubectl, merge_patch, nested, typed
from virt_admit.model.evidence.writes import fleet_objects
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubernetes.objects import Object, Path
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.settings import configuration, feature_gates, versions
from virt_admit.model.kubevirt.settings.feature_gates import NamedGate
from virt_admit.model.messages import names

READS: Final[Reads] = {KUBEVIRT: (), HCO: ()}

_NAMED: Final = re.compile(
    r"\b([A-Za-z]\w{1,63}) feature gate (?:is not|not|must be) enabled", re.ASCII
)
_OWN_NAME: Final = re.compile(r"[A-Z]\w*[a-z]\w*[A-Z]\w*", re.ASCII)
"""A gate that this package may not know yet: two words at least."""
_IN_WORDS: Final[Mapping[str, str]] = {
    "virtiofs feature gate is not enabled for PVC": "EnableVirtioFsStorageVolumes",
    "virtiofs feature gate is not enabled for config volumes": "EnableVirtioFsConfigVolumes",
    "virtiofs feature gate is not enabled": "ExperimentalVirtiofsSupport",
    "Host Devices feature gate is not enabled": "HostDevices",
    "sidecar feature gate is not enabled": "Sidecar",
    "multi-architecture feature gate is not enabled": "MultiArchitecture",
    "Binding plugins feature gate is not enabled": "NetworkBindingPlugins",
    "Panic Devices feature gate is not enabled": "PanicDevices",
    "Reserved overhead memlock feature gate is not enabled": "ReservedOverheadMemlock",
    "DRA enabled GPUs but feature gate is not enabled": "GPUsWithDRA",
    "DRA enabled HostDevices but feature gate is not enabled": "HostDevicesWithDRA",
}
"""The first that is found."""
_SINCE: Final[Mapping[str, str]] = {
    "EnableVirtioFsStorageVolumes": "1.5",
    "EnableVirtioFsConfigVolumes": "1.5",
}
"""Gates of what releases before had without one (pull request 11997)."""
_SETTINGS: Final[Mapping[str, str]] = {
    "Bridge on pod network configuration is not enabled": (
        "spec.configuration.network.permitBridgeInterfaceOnPodNetwork"
    ),
    "bridge interface is not enabled in kubevirt-config": (
        "spec.configuration.network.permitBridgeInterfaceOnPodNetwork"
    ),
    "persistent reservation is not enabled in kubevirt config": (
        "spec.configuration.persistentReservationConfiguration.enabled"
    ),
}
_LIST: Final = Path("spec", "configuration", "developerConfiguration", "featureGates")
_REMOVED: Final = "Discontinued"
_THEN: Final = "; KubeVirt then tries again by itself, within 17 minutes"
"""virt-controller pauses 1000 seconds at most between retries."""


class _Way(NamedTuple):
    """What changes a setting, and its command."""

    words: str
    command: str


def gate_of(said: str) -> str:
    """Return the feature gate that a refusal misses; empty: it names none."""
    named = _NAMED.search(said)
    if named and (named[1] in releases.kubevirt_gates() or _OWN_NAME.fullmatch(named[1])):
        return named[1]
    return next((gate for words, gate in _IN_WORDS.items() if words in said), "")


def is_removed(said: str, cluster: Cluster) -> bool:
    """Return whether a refusal misses a gate of what the running release has no more."""
    return _state(gate_of(said), cluster) == _REMOVED


def remedy(said: str, cluster: Cluster) -> str:
    """Return what ends that KubeVirt refuses an object for what is off in the cluster; empty:
    the refusal names nothing of the kind, or the running release has removed it.
    """
    kubevirt = configuration.known_or_none(configuration.kubevirt, cluster)
    setting = next((path for words, path in _SETTINGS.items() if words in said), "")
    if setting:
        way = _setting(setting, kubevirt, cluster)
        return typed(way.words, way.command) if way.command else way.words
    gate = gate_of(said)
    state = _state(gate, cluster)
    if not gate or state == _REMOVED:
        return ""
    title = f"KubeVirt {kubevirt.full_name}" if kubevirt is not None else "KubeVirt"
    if kubevirt is not None and (state == "GA" or _has(kubevirt, gate)):
        words = f"wait for the next try, as {title} has feature gate {gate} by now"
        return typed(words, about("get", kubevirt, KUBEVIRT, "-o", "yaml"))
    since = f", which it requires since {_SINCE[gate]}" if gate in _SINCE else ""
    way = _gate(gate, since, title, kubevirt, cluster)
    return f"{typed(way.words, way.command)}{_THEN}" if way.command else way.words


def _gate(gate: str, since: str, title: str, kubevirt: Object | None, cluster: Cluster) -> _Way:
    """Return how a gate is enabled."""
    hco = configuration.known_or_none(configuration.hyperconverged, cluster)
    if hco is not None:
        return _of_hco(gate, since, title, hco)
    words = f"add {gate} to the featureGates of {title}"
    if kubevirt is None:
        return _Way(f"{words}{since}", "kubectl get kubevirt -A")
    if chart := fleet_objects.chart_of(kubevirt):
        return _in_chart(f"{words}{since}", chart)
    disabled = next((each for each in _listed(kubevirt, enabled=False) if each.name == gate), None)
    if disabled is not None:
        step = Patch("remove", disabled.path)
        return _Way(
            f"take {gate} out of the disabledFeatureGates of {title}{since}",
            json_patch(KUBEVIRT, kubevirt.name, kubevirt.namespace, [step]),
        )
    own = [each.name for each in _listed(kubevirt, enabled=True)]
    now = f" (now {names(own)})" if own else " (it has none)"
    if kubevirt.at(*_LIST).is_list:
        step = Patch("add", _LIST / "-", gate)
        command = json_patch(KUBEVIRT, kubevirt.name, kubevirt.namespace, [step])
    else:
        data = nested(_LIST, [gate])
        command = merge_patch(KUBEVIRT, kubevirt.name, kubevirt.namespace, data)
    return _Way(f"{words}{now}{since}", command)


def _of_hco(gate: str, since: str, title: str, hco: Object) -> _Way:
    """Return how HyperConverged, which writes KubeVirt, enables a gate."""
    own = _own_gate(gate, hco)
    if own:
        words = f"enable feature gate {own} of HyperConverged {hco.full_name}, which writes {title}"
        if hco.version == "v1beta1":
            data = nested(("spec", "featureGates", own), value=True)
            return _Way(f"{words}{since}", merge_patch(HCO, hco.name, hco.namespace, data))
        return _Way(f"{words}{since}", about("edit", hco, HCO))
    words = (
        f"add {gate} to the featureGates of {title} by annotation {feature_gates.JSON_PATCH} of "
        f"HyperConverged {hco.full_name}, which writes them"
    )
    step = Patch("add", _LIST / "-", gate)
    return _Way(f"{words}{since}", _annotate(hco, step))


def _own_gate(gate: str, hco: Object) -> str:
    """Return the gate of HyperConverged that sets one of KubeVirt; empty: its release has none."""
    running = versions.hco_release(hco)
    release = releases.reached(releases.HYPERCONVERGED, running[:2]) if running is not None else ""
    about_it = releases.about(releases.HYPERCONVERGED, release)
    every = (*about_it.get("fields", ()), *about_it.get("phases", ()))
    own = next((each for each in every if each.lower() == gate.lower()), "")
    return own if own not in about_it.get("ignored", ()) else ""


def _annotate(hco: Object, step: Patch) -> str:
    """Return the command that adds a step to the JSON patch of HyperConverged, or edits it."""
    text = hco.annotation(feature_gates.JSON_PATCH).text
    given = json_codec.embedded(text) if text else []
    if not isinstance(given, list):
        return about("edit", hco, HCO)
    data = json_codec.dumps([*given, step.as_json()]).decode()
    pair = f"{feature_gates.JSON_PATCH}={data}"
    return kubectl("annotate", HCO, hco.name, hco.namespace, "--overwrite", pair)


def _setting(path: str, kubevirt: Object | None, cluster: Cluster) -> _Way:
    """Return how a setting of KubeVirt is switched on, of which HyperConverged has none."""
    title = f"KubeVirt {kubevirt.full_name}" if kubevirt is not None else "KubeVirt"
    steps = path.split(".")
    words = f"set {path} of {title} to true"
    hco = configuration.known_or_none(configuration.hyperconverged, cluster)
    if hco is not None:
        by = f"annotation {feature_gates.JSON_PATCH} of HyperConverged {hco.full_name}"
        return _Way(f"{words} by {by}, which writes it", about("edit", hco, HCO))
    if kubevirt is None:
        return _Way(words, "kubectl get kubevirt -A")
    if chart := fleet_objects.chart_of(kubevirt):
        return _in_chart(words, chart)
    data = nested(steps, value=True)
    return _Way(words, merge_patch(KUBEVIRT, kubevirt.name, kubevirt.namespace, data))


def _in_chart(words: str, chart: str) -> _Way:
    """Return a change of KubeVirt where Harvester writes it: one by hand makes its chart Modified,
    with which no upgrade starts.
    """
    by = f"in spec.values of ManagedChart {chart}, which writes it"
    return _Way(f"{words} {by}", fleet_objects.edit(chart))


def _listed(kubevirt: Object, *, enabled: bool) -> list[NamedGate]:
    return [each for each in feature_gates.kubevirt_gates(kubevirt) if each.enabled is enabled]


def _has(kubevirt: Object, gate: str) -> bool:
    return any(each.name == gate for each in _listed(kubevirt, enabled=True))


def _state(gate: str, cluster: Cluster) -> str:
    """Return the state of a gate in the running release; empty: not known."""
    running = versions.kubevirt_version(cluster)
    release = releases.reached(releases.KUBEVIRT, running[:2]) if running is not None else ""
    states: Mapping[str, str] = releases.about(releases.KUBEVIRT, release).get("gates", {})
    return states.get(gate, "")
