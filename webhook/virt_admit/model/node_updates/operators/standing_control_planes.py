"""Control planes of Cluster API whose roll-out stands, as a condition of them says.

The providers delete no Machine while etcd or another part is not healthy, and the Cluster only
repeats that it scales. The condition names what is wrong, and often the Machine. A new Machine of
bare metal takes up to an hour to join, and conditions are False for that time.

The Talos provider takes the oldest outdated Machine out of etcd, and deletes it afterwards. Up to
release 0.5.12 it counts that Machine until it is being deleted: if the deletion fails once, etcd
has a member too few for good, and nothing is deleted before etcd is healthy. Talos runs the static
pods of the control plane only where its etcd runs. Sources:
siderolabs/cluster-api-control-plane-provider-talos:controllers/scale.go#scaleDownControlPlane
#selectMachineForScaleDown, :controllers/etcd.go#etcdHealthcheck #gracefulEtcdLeave, issues #237 and
#262 (a member that fails by itself), pull request #250 (the annotation, in 0.5.13);
rancher/cluster-api-provider-rke2:controlplane/api/v1beta1/condition_consts.go;
kubernetes-sigs/cluster-api:api/controlplane/kubeadm/v1beta1/condition_consts.go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.evidence import condition_words, status_errors
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    DEPLOYMENT,
    KUBEADM,
    NODE,
    POD,
    RKE2_CONTROL_PLANE,
    TALOS_CONTROL_PLANE,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import advice_of, count, cut, mentions, names
from virt_admit.model.node_updates.operators import etcd_leftovers, paused_clusters
from virt_admit.model.remediation import machine_drain, machine_owners
from virt_admit.model.remediation.machines import node_name

KINDS: Final[tuple[Kind, ...]] = (KUBEADM, RKE2_CONTROL_PLANE, TALOS_CONTROL_PLANE)
_API_SERVER: Final = "kube-apiserver"
_APP: Final = ("k8s-app", "component")
READS: Final[Reads] = union(
    clock.READS,
    etcd_leftovers.READS,
    machine_drain.READS,
    machine_nodes.READS,
    paused_clusters.READS,
    dict.fromkeys(KINDS, ()),
    {
        CAPI_MACHINE: (
            *("metadata.creationTimestamp", "metadata.ownerReferences", "metadata.annotations"),
            *("spec.version", "status.conditions", "status.v1beta2.conditions"),
            "status.lastUpdated",
        ),
        POD: (*("spec.nodeName", "status.phase"), *(f"metadata.labels.{label}" for label in _APP)),
        DEPLOYMENT: ("spec.template.spec.containers.image",),
    },
)
_PATIENCE: Final = timedelta(hours=1)
_JOINS: Final = timedelta(minutes=15)
"""The member of etcd on a new node is healthy by then. A server of bare metal may have taken more
than an hour to become that node."""
_ROLLS: Final = {"RollingOut": "True", "MachinesUpToDate": "False", "MachinesSpecUpToDate": "False"}
"""The conditions that tell of a roll-out, with their status while it lasts."""
_SUMMARIES: Final = ("Ready", "Available", "MachinesReady")
"""Conditions that follow from others."""
_AWAITED: Final = ("EtcdCluster", "ControlPlaneComponents")
"""Begins of the conditions without which no provider deletes a Machine."""
_COUNTED: Final = re.compile(r"expected to have (\d{1,3}) members, got (\d{1,3})(?!\d)")
_LEAVING: Final = "controlplane.cluster.x-k8s.io/etcd-leaving"
_DELETE: Final = "cluster.x-k8s.io/delete-machine"
"""The annotation of Machines that a control plane deletes first."""
_IMAGE: Final = re.compile(
    r"/cluster-api-control-plane-talos-controller:v(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\d.])"
)
_FIXED: Final = (0, 5, 13)


class StandingControlPlane(NamedTuple):
    """A control plane whose roll-out does not go on."""

    owner: Object
    reason: str
    brief: str
    """The same without the words of its controller."""
    remedy: str
    advice: str
    """The remedy in one sentence, without its command and the update of the provider."""
    certain: bool
    """Whether its provider certainly waits for that; the condition may have another effect."""


def of(owner: Object, cluster: Cluster) -> StandingControlPlane | None:
    """Return why the roll-out of a control plane stands; None: it goes on, or nothing says so.

    Raises:
        Unseen: not all Machines are known, and one of them may be under deletion.
    """
    rolling, failing = _rolling(owner), _failing(owner, cluster)
    if owner.deleted or rolling is None or failing is None or not _is_long(rolling, cluster):
        return None
    machines = machine_owners.owned(owner, cluster)
    if not machines or any(each.deleted or not node_name(each) for each in machines):
        return None  # it goes on, or it waits for that Machine
    if any(_is_new(each, cluster) for each in machines):
        return None
    if paused_clusters.of_member(owner, cluster):
        return None
    if owner.kind == KUBEADM.kind and etcd_leftovers.of(owner, cluster) is not None:
        return None  # which says it
    old = [each for each in machines if is_old(each, owner)]
    version = cut(owner.at("spec", "version").text or "", 40)
    to = f" to {version}" if version else ""
    lasts = clock.lasting(rolling["lastTransitionTime"].text, cluster)
    kind = failing["type"].text or "?"
    is_so = f"{kind} is {failing['status'].text}"
    is_so += clock.lasting(failing["lastTransitionTime"].text, cluster)
    own = names([each.name for each in old], 160)
    some = f"{count(len(machines), 'Machine')}"
    outdated = f". Of {some}, {own} {'is' if len(old) == 1 else 'are'} outdated" if old else ""
    said = cut(status_errors.plain(failing["message"].text or ""), 320)
    fault = _left_etcd(owner, machines, old, said, cluster) or _other(owner, machines, kind, said)
    begin = f"{owner.kind} {owner.full_name} does not end its roll-out{to}, which lasts{lasts}"
    return StandingControlPlane(
        owner,
        f"{begin}: {is_so} ({said}){outdated}{fault.words and f'. {fault.words}'}",
        f"{begin}: {is_so}{fault.brief and f'. {fault.brief}'}",
        _updated(fault.remedy, cluster) if fault.of_provider else fault.remedy,
        advice_of(fault.remedy),
        kind.startswith(_AWAITED),
    )


def held(cluster: Cluster) -> tuple[StandingControlPlane, ...]:
    """Return the control planes whose roll-outs stand."""
    found: list[StandingControlPlane] = []
    for kind in KINDS:
        for owner in sorted(cluster.known(kind), key=lambda each: each.full_name):
            try:
                own = of(owner, cluster)
            except Unseen:
                continue
            found += [own] if own is not None else []
    return tuple(found)


def _is_new(machine: Object, cluster: Cluster) -> bool:
    """Return whether a Machine was made or got its node so short ago that the roll-out goes on."""
    made = clock.since(machine.created, cluster)
    changed = clock.since(machine.at("status", "lastUpdated").text, cluster)
    return (made is not None and made < _PATIENCE) or (changed is not None and changed < _JOINS)


def _is_long(condition: Field, cluster: Cluster) -> bool:
    return clock.has_lasted(condition["lastTransitionTime"].text, _PATIENCE, cluster)


def _rolling(owner: Object) -> Field | None:
    """Return the condition that a roll-out is under way; None: none is."""
    found = ((machine_drain.condition(owner, kind), status) for kind, status in _ROLLS.items())
    return next((each for each, status in found if each["status"].text == status), None)


def _failing(owner: Object, cluster: Cluster) -> Field | None:
    """Return the condition that says why a roll-out stands, etcd first; None: none does."""
    status = owner["status"]
    every = (*status["conditions"].items(), *status.at("v1beta2", "conditions").items())
    found = [each for each in every if _is_wrong(each, owner)]
    found.sort(key=lambda each: "etcd" not in (each["type"].text or "").lower())
    return next((each for each in found if _is_long(each, cluster)), None)


def _is_wrong(condition: Field, owner: Object) -> bool:
    kind, message = condition["type"].text or "", condition["message"].text or ""
    if kind in _SUMMARIES or condition["severity"].text == "Info" or not message:
        return False
    reason = condition["reason"].text or ""
    wrong = condition_words.is_wrong(condition, owner, of_part=False)
    return wrong and not condition_words.is_usual(kind, reason, message, owner)


def is_old(machine: Object, owner: Object) -> bool:
    """Return whether a Machine is known not to have what its control plane wants."""
    said = machine_drain.condition(machine, "UpToDate")["status"].text
    if said in ("True", "False"):
        return said == "False"
    has, wants = machine.at("spec", "version").text, owner.at("spec", "version").text
    return bool(has and wants) and has != wants


class _Fault(NamedTuple):
    """What a condition is about."""

    words: str
    brief: str
    remedy: str
    of_provider: bool = False
    """Whether an older release of the provider causes it."""


def _other(owner: Object, machines: Sequence[Object], kind: str, said: str) -> _Fault:
    """Return where to look: at the Machine that a message names, else at the control plane."""
    named = [each for each in machines if mentions(said, each.name)]
    which = f"Machine {names([each.name for each in named])}" if named else ""
    own = next(each for each in KINDS if each.kind == owner.kind)
    see = about("describe", named[0], CAPI_MACHINE) if named else about("describe", owner, own)
    words = f"repair what {kind} says{f' of {which}' if which else ''}"
    brief = f"It names {which}" if which else ""
    certain = kind.startswith(_AWAITED)
    then = "and the roll-out goes on by itself" if certain else "as the roll-out may wait for that"
    return _Fault("", brief, typed(f"{words}, {then}", see))


# --- the Talos provider ---------------------------------------------------------------------------


def _left_etcd(
    owner: Object, machines: Sequence[Object], old: Sequence[Object], said: str, cluster: Cluster
) -> _Fault | None:
    """Return that a Machine has left etcd and is not being deleted; None: that is not so.

    Args:
        owner: the control plane.
        machines: its Machines, the oldest first.
        old: those of them that are outdated.
        said: why etcd is not healthy.
        cluster: the cluster.
    """
    found = _COUNTED.search(said)
    if owner.kind != TALOS_CONTROL_PLANE.kind or found is None or not old:
        return None
    if len(machines) == 1:  # which it never takes out of etcd
        return None
    if int(found[1]) != len(machines) or int(found[2]) != len(machines) - 1:
        return None
    marked = [each for each in old if _DELETE in each.annotations]
    next_one = (marked or old)[0]
    if any(each.annotations.get(_LEAVING) == "true" for each in machines):
        return None
    gone = _without_api_server(machines, cluster)
    if gone is not None and gone != [next_one]:
        return _unlike(gone, machines)
    name, rest = next_one.name, len(machines) - 1
    others = f"the other {rest}" if rest > 1 else "the other one"
    members = "healthy members" if rest > 1 else "a healthy member"
    which = "the one that is marked for deletion" if marked else "the oldest outdated one"
    takes = f"The provider takes {which}, {name}, out of etcd before it deletes it"
    then = (
        "It counts each Machine that is not being deleted, and deletes none while a member is "
        "missing"
    )
    if gone is None:
        words = f"{takes}. {then}"
        check = (
            "see with talosctl etcd members, in that cluster, which Machine is not a member. Only "
            f"if that is {name}, and {others} {'are' if rest > 1 else 'is'} {members}, delete it, "
            "as a decision"
        )
        remedy = typed(check, about("describe", next_one, CAPI_MACHINE))
        return _Fault(words, takes, remedy, of_provider=True)
    words = (
        f"Machine {name} has left etcd, but is not being deleted: its node runs no {_API_SERVER}, "
        f"unlike that of {others}. {takes}. {then}"
    )
    check = (
        f"as a decision, once talosctl etcd members and etcd status show {others} as {members}, "
        f"and {name} not, delete that Machine"
    )
    delete = kubectl("delete", CAPI_MACHINE, name, next_one.namespace, "--wait=false")
    brief = f"Machine {name} has left etcd, but is not being deleted"
    return _Fault(words, brief, typed(check, delete), of_provider=True)


def _unlike(gone: Sequence[Object], machines: Sequence[Object]) -> _Fault | None:
    """Return which Machines may not be members of etcd, where these are not the one that the
    provider takes out of it, such as a new one."""
    if not gone or len(gone) == len(machines):
        return None
    them = names([each.name for each in gone])
    words = f"Machine {them} runs no {_API_SERVER} on its node, so its etcd may not run"
    see = about("describe", gone[0], CAPI_MACHINE)
    return _Fault(words, words, typed(f"see why etcd does not run on {gone[0].name}", see))


def _without_api_server(machines: Sequence[Object], cluster: Cluster) -> list[Object] | None:
    """Return the Machines on whose nodes no API server runs; None: that is not known."""
    nodes = [machine_nodes.node_name(each, cluster) for each in machines]
    if unlisted(cluster, POD) or not all(find(cluster, NODE, "", each) for each in nodes):
        return None
    runs = cluster.cached(_api_servers)
    if not runs:
        return None
    return [each for each, node in zip(machines, nodes, strict=True) if node not in runs]


def _api_servers(cluster: Cluster) -> frozenset[str]:
    """Return the nodes on which an API server runs."""
    pods = (pod for pod in cluster.known(POD, "kube-system") if not pod.ended)
    labelled = (pod for pod in pods if any(pod.labels.get(label) == _API_SERVER for label in _APP))
    return frozenset(pod.at("spec", "nodeName").text or "" for pod in labelled)


def _updated(remedy: str, cluster: Cluster) -> str:
    """Return a remedy with the update of the provider, if it may be a release with the fault."""
    found = cluster.cached(_release)
    if found is not None and found >= _FIXED:
        return remedy
    is_run = f" ({'.'.join(map(str, found))} runs)" if found is not None else ""
    runs = is_run or ", if it is older"
    fixed = ".".join(map(str, _FIXED))
    return (
        f"{remedy}; the roll-out then goes on. Update the Talos control plane provider to {fixed} "
        f"or later{runs}, as it may stop at the next Machine as well"
    )


def _release(cluster: Cluster) -> tuple[int, ...] | None:
    """Return the release of the provider that runs; None: it is not known."""
    images = (
        _IMAGE.search(container["image"].text or "")
        for each in cluster.known(DEPLOYMENT)
        for container in each.at("spec", "template", "spec", "containers").items()
    )
    found = next(filter(None, images), None)
    return tuple(map(int, found.groups())) if found is not None else None
