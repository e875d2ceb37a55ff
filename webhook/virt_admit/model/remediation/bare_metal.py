"""Whether the machines of a health check are bare metal,
which takes much longer to become a node than a VM.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, more_may_exist, unlisted
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    IN,
    NOT_IN,
    Requirement,
    Selector,
)
from virt_admit.model.kubernetes.units import MINUTE
from virt_admit.model.lookups import is_absent
from virt_admit.model.messages import names
from virt_admit.model.remediation import check_scope, health_checks, machines

READS: Final[Reads] = union(
    machines.SELECT_READS,
    {
        kinds.MACHINE: ("spec.providerSpec.value.instanceType", "spec.providerSpec.value.kind"),
        kinds.CAPI_MACHINE: ("spec.infrastructureRef.kind",),
        kinds.INFRASTRUCTURE: (),
    },
)
"""The fields that ``reason`` reads."""

_PROVIDERS: Final = ("Metal3", "BareMetal", "Tinkerbell")
"""The first words of the kinds of bare metal providers: Metal3Machine,
BareMetalMachineProviderSpec.
"""

_METAL_TYPE: Final = re.compile(r"\.metal(-[a-z0-9]+)?\Z")
"""Instance types such as ``c5.metal`` and ``c7i.metal-24xl``."""


HOST: Final = "metal3.io/BareMetalHost"
"""The annotation of a Machine of OpenShift with its host."""
ENOUGH: Final = 20 * MINUTE
"""Nanoseconds that a host of bare metal usually needs at most to become a node: it tests its
hardware and is written.
"""


def reason(obj: Object, cluster: Cluster) -> str:
    """Return why the machines of a health check are bare metal; empty if they are not.

    Raises:
        Unseen: a machine or the platform that decides cannot be read.
    """
    check = health_checks.view(obj)
    kind = check.template["kind"].text or ""
    if check.external or kind.startswith(_PROVIDERS):
        return "hosts" if check.external else kind
    selection = check_scope.selected_by(check, cluster)
    for machine in selection.objects:
        found = _of_machine(machine)
        if found:
            return found
    if check.kind is kinds.MHC and machines.platform(cluster) == "BareMetal":
        return "platform BareMetal"
    if selection.unseen:
        raise Unseen(selection.unseen)
    return ""


def leave_room(
    starts: Sequence[timedelta], selection: Selection, allowed: timedelta, cluster: Cluster
) -> bool:
    """Return whether the known starts of hosts leave a quarter of the time that they are allowed.

    One alone may have been fast for another cause.

    Raises:
        Unseen: one at most is known, and Nodes of the Machines could not be read.
    """
    if len(starts) > 1:
        return max(starts) * 5 <= allowed * 4
    if any(each.at("status", "nodeRef", "name").text for each in selection.objects):
        for unseen in more_may_exist(cluster, kinds.NODE):
            raise unseen
    return False


def _of_machine(machine: Object) -> str:
    if kinds.of(machine) is kinds.CAPI_MACHINE:
        kind = machine.at("spec", "infrastructureRef", "kind").text or ""
    else:
        spec = machine.at("spec", "providerSpec", "value")
        instance_type = spec["instanceType"].text or ""
        if _METAL_TYPE.search(instance_type):
            return instance_type
        kind = spec["kind"].text or ""
    return kind if kind.startswith(_PROVIDERS) else ""


# --- hosts ----------------------------------------------------------------------------------------

HOST_READS: Final[Reads] = {
    kinds.BARE_METAL_HOST: (
        *("spec.consumerRef", "status.provisioning.state"),
        *("status.errorMessage", "status.operationalStatus"),
    ),
    kinds.MACHINE: (f"metadata.annotations.{HOST}", "spec.providerSpec.value.kind"),
    kinds.CAPI_MACHINE: (
        "spec.infrastructureRef.kind",
        "spec.infrastructureRef.name",
        "status.conditions",
        "status.v1beta2.conditions",
    ),
}
"""The fields that ``shortage`` reads."""
_FREE: Final = ("available", "ready")
"""The states of a host that a Machine can get
(openshift/cluster-api-provider-baremetal:pkg/cloud/baremetal/actuators/machine/
actuator.go#chooseHost;
metal3-io/cluster-api-provider-metal3:baremetal/metal3machine_manager.go#chooseHost).
"""


def free_hosts(cluster: Cluster) -> int | None:
    """Return how many known hosts a Machine can get; None: no host is known."""
    known = cluster.known(kinds.BARE_METAL_HOST)
    return sum(map(_is_free, known)) if known else None


def _is_free(host: Object) -> bool:
    taken = host.at("spec", "consumerRef").present
    return not taken and host.at("status", "provisioning", "state").text in _FREE


class HostShortage(NamedTuple):
    """Why a Machine gets no host."""

    words: str
    """``all 6 BareMetalHosts are in use``."""
    lasts: bool
    """Whether no host is on its way to become available."""
    record: StaleRecord | None = None
    """What keeps the only hosts that no Machine has from being registered; None: that is not so."""


def shortage(machine: Object, cluster: Cluster) -> HostShortage | None:
    """Return why a Machine without a host gets none; None: that is not known."""
    has_host = machine.annotation(HOST).present or machine.is_true("InfrastructureReady")
    if has_host or not _of_machine(machine):
        return None
    try:
        found = [
            each
            for each in cluster.list(kinds.BARE_METAL_HOST)
            if each.namespace == machine.namespace
        ]
    except Unseen:
        return None
    consumer = _consumer(machine)
    if any(each.at("spec", "consumerRef", "name").text == consumer for each in found):
        return None
    idle = [each for each in found if not each.at("spec", "consumerRef").present]
    if any(map(_is_free, idle)):
        return None
    if not idle:
        words = f"{_all_of(len(found))} in use" if found else "no BareMetalHost exists"
        return HostShortage(words, lasts=True)
    stale = [stale_record(each, cluster) for each in idle]
    states = names(
        f"{each.name} is in state {each.at('status', 'provisioning', 'state').text or '?'}"
        + (f", as {record.brief}" if record is not None else "")
        for each, record in zip(idle, stale, strict=True)
    )
    lasts = all(stale)
    return HostShortage(
        f"no BareMetalHost is available: {states}", lasts, stale[0] if lasts else None
    )


_ANY: Final = Selector()


def all_taken(namespace: str, cluster: Cluster, selector: Selector = _ANY) -> str:
    """Return that the hosts of a namespace with bare metal are in use, as a clause; empty: one is
    free or on its way, or that is not known. With a selector only those that it matches count."""
    machines_here = (
        each
        for kind in (kinds.MACHINE, kinds.CAPI_MACHINE)
        for each in cluster.known(kind, namespace)
    )
    found = cluster.known(kinds.BARE_METAL_HOST, namespace)
    if unlisted(cluster, kinds.BARE_METAL_HOST) or not any(map(_of_machine, machines_here)):
        return ""
    own = [each for each in found if selector.matches(each.labels)]
    if not found or not all(each.at("spec", "consumerRef").present for each in own):
        return ""
    if selector.empty:
        return f"{_all_of(len(own))} in use"
    which = f"that hostSelector {selector} selects"
    free = [each.name for each in found if _is_free(each)]
    are = "is" if len(free) == 1 else "are"
    other = f" ({names(free)} {are} free, but not selected)" if free else ""
    if not own:
        return f"no BareMetalHost exists {which}{other}"
    return f"{_all_of(len(own), f' {which}')} in use{other}"


def _all_of(hosts: int, which: str = "") -> str:
    if hosts > 1:
        return f"all {hosts} BareMetalHosts{which} are"
    return f"the only BareMetalHost{which} is"


SELECTOR_READS: Final[Reads] = {
    kinds.BARE_METAL_HOST: ("metadata.labels",),
    kinds.METAL3_MACHINE_TEMPLATE: ("spec.template.spec.hostSelector",),
}
"""The fields that ``host_selector`` and ``all_taken`` with its result read."""
_OPERATORS: Final = {
    **dict.fromkeys(("in", "=", "=="), IN),
    **dict.fromkeys(("notin", "!="), NOT_IN),
    "exists": EXISTS,
    "!": DOES_NOT_EXIST,
}
"""Those of a ``hostSelector``, of which Metal3 ignores the case (metal3machine_manager.go
#hostLabelSelectorForMachine; k8s.io/apimachinery:pkg/selection/operator.go)."""


def host_selector(template: Object) -> Selector | None:
    """Return which hosts the Machines of a Metal3MachineTemplate can get; None: one of its
    requirements is not valid or compares numbers.
    """
    field = template.at("spec", "template", "spec", "hostSelector")
    labels = field["matchLabels"].map.items()
    found = {Requirement(key, IN, frozenset((str(value),))) for key, value in labels}
    for each in field["matchExpressions"].items():
        operator = _OPERATORS.get((each["operator"].text or "").lower())
        if operator is None or not (key := each["key"].text):
            return None
        values = frozenset(value.text for value in each["values"].items() if value.text is not None)
        found.add(Requirement(key, operator, values))
    return Selector(frozenset(found))


def _consumer(machine: Object) -> str:
    """Return the name in ``consumerRef`` of the host of a Machine:
    with Cluster API that of its Metal3Machine.

    Source:
    metal3-io/cluster-api-provider-metal3:baremetal/metal3machine_manager.go#setHostConsumerRef.
    """
    if kinds.of(machine) is kinds.CAPI_MACHINE:
        return machine.at("spec", "infrastructureRef", "name").text or machine.name
    return machine.name


# --- hosts that Ironic knows under another name ---------------------------------------------------

RECORD_READS: Final[Reads] = {
    kinds.BARE_METAL_HOST: (
        *("status.errorMessage", "status.operationalStatus", "status.provisioning.state"),
        "spec.consumerRef",
    ),
    kinds.POD: ("metadata.labels",),
}
"""The fields that ``stale_record`` and its remedy read."""
_CONFLICT: Final = re.compile(
    r"^MAC address (\S{1,64}) conflicts with existing node "
    r"(?:([a-z0-9-]{1,63})~)?([a-z0-9.-]{1,253})"
)
"""metal3-io/baremetal-operator:pkg/provisioner/ironic/ironic.go#macAddressConflictError; Ironic has
a host under its namespace and name (#ironicNodeName)."""
_IRONIC: Final = ("baremetal.openshift.io/cluster-baremetal-operator", "metal3-state")
"""The label of the pod of Ironic of OpenShift, whose database goes with the pod, and is filled from
the BareMetalHosts (openshift/cluster-baremetal-operator:provisioning/baremetal_pod.go)."""
_AT_WORK: Final = (
    *("inspecting", "preparing", "provisioning", "deprovisioning", "deleting"),
    "powering off before delete",
)
SERVICED: Final = "servicing"
"""The operational status of a host whose firmware Ironic updates while it is provisioned
(metal3-io/baremetal-operator:apis/metal3.io/v1alpha1/baremetalhost_types.go)."""


def at_work(cluster: Cluster, namespace: str | None = None) -> Sequence[Object]:
    """Return the known hosts that Ironic works on, by name."""
    found = (
        each
        for each in cluster.known(kinds.BARE_METAL_HOST, namespace)
        if each.at("status", "provisioning", "state").text in _AT_WORK
        or each.at("status", "operationalStatus").text == SERVICED
    )
    return sorted(found, key=lambda each: each.full_name)


class StaleRecord(NamedTuple):
    """A host that Ironic refuses, since it has its MAC address under the name of another one that
    does not exist any more: its finalizer was taken off by hand."""

    host: Object
    mac: str
    space: str
    name: str
    """Namespace and name of the host that is gone."""

    @property
    def old_name(self) -> str:
        """The name of the host that is gone, with another namespace before it."""
        return self.name if self.space == self.host.namespace else f"{self.space}/{self.name}"

    @property
    def brief(self) -> str:
        """What Ironic has, as a clause."""
        return (
            f"Ironic still has its MAC address {self.mac} under {self.old_name}, and no "
            "BareMetalHost of that name exists"
        )


def stale_record(host: Object, cluster: Cluster) -> StaleRecord | None:
    """Return that Ironic has a host under the name of one that is gone; None: it reports no such
    conflict, the other host exists, or may exist."""
    found = _conflict(host)
    if found is None:
        return None
    mac, space, name = found[1], found[2] or host.namespace, found[3].rstrip(".")
    gone = is_absent(cluster, kinds.BARE_METAL_HOST, space, name)
    return StaleRecord(host, mac, space, name) if gone else None


def conflicts(host: Object) -> bool:
    """Return whether a host reports that another one has its MAC address."""
    return _conflict(host) is not None


def _conflict(host: Object) -> re.Match[str] | None:
    status = host["status"]
    is_error = status["operationalStatus"].text == "error"
    return _CONFLICT.match(status["errorMessage"].text or "") if is_error else None


def record_remedy(record: StaleRecord, cluster: Cluster) -> str:
    """Return what takes the record away, with a command if Ironic is that of OpenShift."""
    rename = (
        f"enrol the host under its old name {record.old_name}; delete that object later without "
        "touching its finalizer, which removes the record"
    )
    key, value = _IRONIC
    ironic = [each for each in cluster.known(kinds.POD) if each.labels.get(key) == value]
    if not ironic:
        see = about("describe", record.host, kinds.BARE_METAL_HOST)
        return typed(rename, see, "or delete the record in Ironic's own database")
    busy = [each.name for each in at_work(cluster)]
    later = f", once {names(busy, 80)} {'are' if len(busy) > 1 else 'is'} done" if busy else ""
    way = f"restart Ironic, which makes its records again from the BareMetalHosts{later}"
    return typed(way, about("delete", ironic[0], kinds.POD), f"or {rename}")


# --- hosts that are to be powered off -------------------------------------------------------------

POWER_READS: Final[Reads] = union(
    HOST_READS,
    machine_nodes.READS,
    {
        kinds.BARE_METAL_HOST: (
            "metadata.annotations",
            "spec.bmc",
            "status.errorMessage",
            "status.errorType",
            "status.operationalStatus",
            "status.poweredOn",
        )
    },
)
"""The fields that ``host_of`` and the questions about a host read."""
_TO_BE_OFF: Final = "reboot.metal3.io/"
"""The begin of the annotations that keep a host off while they are there; a remediation sets one
(metal3-io/baremetal-operator:internal/controller/metal3.io/baremetalhost_controller.go
#manageHostPower #hasRebootAnnotation;
openshift/cluster-api-provider-baremetal:pkg/cloud/baremetal/actuators/machine/actuator.go
#requestPowerOff; metal3-io/cluster-api-provider-metal3:baremetal/metal3remediation_manager.go).
"""
_OF_POWER: Final = (
    *("registration error", "provisioned registration error"),
    "power management error",
)
"""The errors of a host whose management controller cannot be reached, or does not obey
(metal3-io/baremetal-operator:apis/metal3.io/v1alpha1/baremetalhost_types.go#ErrorType).
"""


def host_of(node: str, cluster: Cluster) -> Object | None:
    """Return the known BareMetalHost of a node; None: none is known."""
    return _hosts(cluster).get(node)


@cached
def _hosts(cluster: Cluster) -> Mapping[str, Object]:
    """Return the known hosts by the names of their nodes."""
    consumers = {
        (consumer["namespace"].text or host.namespace, consumer["name"].text): host
        for host in cluster.known(kinds.BARE_METAL_HOST)
        if (consumer := host.at("spec", "consumerRef")).present
    }
    known = (kinds.MACHINE, kinds.CAPI_MACHINE) if consumers else ()
    return {
        name: host
        for kind in known
        for machine in cluster.known(kind)
        if (host := consumers.get((machine.namespace, _consumer(machine)))) is not None
        if (name := machine_nodes.node_name(machine, cluster))
    }


def serviced(node: str, cluster: Cluster) -> Object | None:
    """Return the known host of a node whose firmware is updated now; None: none is."""
    host = host_of(node, cluster)
    is_it = host is not None and host.at("status", "operationalStatus").text == SERVICED
    return host if is_it else None


def serviced_machines(cluster: Cluster) -> Sequence[Object]:
    """Return the Machines of Cluster API whose hosts have their firmware updated now."""
    return [
        machine
        for machine in cluster.known(kinds.CAPI_MACHINE)
        if (node := machine.at("status", "nodeRef", "name").text)
        and not machine.deleted
        and serviced(node, cluster) is not None
    ]


def is_asked_off(host: Object) -> bool:
    """Return whether a host is to be off and is not known to be.

    A remediation lets the VMs of its node start elsewhere only once it is (#remediateIfNeeded;
    metal3-io/cluster-api-provider-metal3:controllers/metal3remediation_controller.go
    #remediateRebootStrategy).
    """
    return host.at("status", "poweredOn").boolean is not False and any(
        key.startswith(_TO_BE_OFF) for key in host.annotations
    )


def power_error(host: Object) -> str:
    """Return which error keeps a host from being powered off; empty: it reports none."""
    status = host["status"]
    error = status["errorType"].text or ""
    return error if status["operationalStatus"].text == "error" and error in _OF_POWER else ""
