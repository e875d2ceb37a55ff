"""VMs that are off: what a start would meet now, before anything has tried."""

from collections.abc import Callable

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import Object, ago, api_service, obj, pod, webhook
from tests.incidents.machines import find, guest
from virt_admit.forecasts.drain.control import vm_writes
from virt_admit.forecasts.drain.starts import next_starts, start_obstacles
from virt_admit.forecasts.placement import start_candidates
from virt_admit.model.kubernetes import objects
from virt_admit.model.kubernetes.cluster import Snapshot

LARGE = {"cpu": {"guest": 2}, "memory": {"guest": "900Gi"}}
SMALL = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}


def off(run: str = "Halted", **fields: object) -> list[Object]:
    """Return a cluster with a VM that has no VMI."""
    left = ("VirtualMachineInstance", "Pod", "PodDisruptionBudget")
    return plain() + [each for each in guest("cad", run=run, **fields) if each["kind"] not in left]


def asked(items: list[Object], *complete: str) -> tuple[objects.Object, Snapshot]:
    known = Snapshot(list(map(objects.Object, items)), complete or ["*"], time=ago())
    return objects.Object(find(items, "VirtualMachine", "cad")), known


def vm(items: list[Object]) -> Object:
    return find(items, "VirtualMachine", "cad")


def body(items: list[Object]) -> Object:
    return vm(items)["spec"]["template"]["spec"]


def silent(resource: str, group: str, **more: object) -> Object:
    rules = {"x.corp.io": (group, [resource], ["CREATE"])}
    return webhook("Validating", "corp", ("corp", "gone"), rules, **more)


def quota(hard: str) -> Object:
    limits = {"requests.memory": hard}
    status = {"hard": limits, "used": {"requests.memory": "0"}}
    return obj("ResourceQuota", "v1", "compute", "vms", spec={"hard": limits}, status=status)


def crashed(items: list[Object], component: str) -> None:
    for each in items:
        if each["kind"] == "Pod" and each["metadata"]["name"].startswith(component):
            state = {"waiting": {"reason": "CrashLoopBackOff"}}
            each["status"]["containerStatuses"][0] |= {"ready": False, "state": state}
            for condition in each["status"]["conditions"]:
                if condition["type"] in ("Ready", "ContainersReady"):
                    condition |= {"status": "False", "lastTransitionTime": ago(hours=2)}


def sized(items: list[Object], spec: Object, revision: str = "") -> None:
    """Let the VM take its size from an instance type."""
    named = {"kind": "VirtualMachineInstancetype", "name": "own"}
    vm(items)["spec"]["instancetype"] = named | ({"revisionName": revision} if revision else {})
    for key in ("cpu", "memory", "resources"):
        body(items)["domain"].pop(key, None)
    version = "instancetype.kubevirt.io/v1beta1"
    items.append(obj("VirtualMachineInstancetype", version, "own", "vms", spec=spec))


def without(items: list[Object], *kinds: str) -> None:
    items[:] = [
        each for each in items if each["kind"] not in kinds or each["metadata"]["name"] != "cad"
    ]


def ending(items: list[Object]) -> None:
    find(items, "Namespace", "vms")["metadata"]["deletionTimestamp"] = ago(hours=1)


def demanding(items: list[Object], **fields: object) -> None:
    body(items).update(fields)


def plugged(items: list[Object], claim: str) -> None:
    source = {"claimName": claim, "hotpluggable": True}
    body(items)["volumes"].append({"name": "more", "persistentVolumeClaim": source})


FAULTS: list[tuple[str, Callable[[list[Object]], object], str, str]] = [
    ("namespace", ending, "namespace vms is being deleted", "another namespace"),
    (
        "claim",
        lambda items: without(items, "PersistentVolumeClaim"),
        "its claim cad does not exist, and no DataVolume makes it",
        "restore claim cad from a backup or a snapshot",
    ),
    (
        "copy of the instance type",
        lambda items: sized(items, SMALL, "copy-1"),
        "names controllerrevisions.apps vms/copy-1, which does not exist",
        "remove spec.instancetype.revisionName",
    ),
    (
        "controller",
        lambda items: crashed(items, "virt-controller"),
        "virt-controller has no Ready pod",
        "kubectl logs virt-controller",
    ),
    (
        "webhook on pods",
        lambda items: items.append(silent("pods", "")),
        "webhook x.corp.io refuses what a start creates or updates in namespace vms: Service",
        "kubectl delete validatingwebhookconfiguration/corp",
    ),
    (
        "webhook on VMIs",
        lambda items: items.append(silent("virtualmachineinstances", "kubevirt.io")),
        "webhook x.corp.io refuses",
        "kubectl delete validatingwebhookconfiguration/corp",
    ),
    (
        "quota",
        lambda items: items.append(quota("1Mi")),
        "ResourceQuota compute: requests.memory",
        "raise ResourceQuota compute",
    ),
    (
        "selector",
        lambda items: demanding(items, nodeSelector={"zone": "mars"}),
        "no node can take it: node selector zone=mars",
        "zone",
    ),
    (
        "size of the instance type",
        lambda items: sized(items, LARGE),
        "no node can take it: memory: ",
        "add a node",
    ),
]
LIKE: list[tuple[str, Callable[[list[Object]], object]]] = [
    ("a hotplugged volume without its claim", lambda items: plugged(items, "gone")),
    ("healthy", lambda items: None),
    ("claim of a template", lambda items: (of_template(items), without(items, CLAIM))),
    ("claim of a data volume", lambda items: (filled(items), without(items, CLAIM))),
    ("instance type", lambda items: sized(items, SMALL)),
    ("one controller", lambda items: crashed(items, "virt-controller-5d8f-x0")),
    ("open webhook", lambda items: items.append(silent("pods", "", policy="Ignore"))),
    (
        "webhook of others",
        lambda items: items.append(
            silent("pods", "", namespaceSelector={"matchLabels": {"team": "web"}})
        ),
    ),
    ("webhook on claims", lambda items: items.append(silent("persistentvolumeclaims", ""))),
    ("quota with room", lambda items: items.append(quota("900Gi"))),
]
CLAIM = "PersistentVolumeClaim"


def of_template(items: list[Object]) -> None:
    vm(items)["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "cad"}, "spec": {}}]


def filled(items: list[Object]) -> None:
    version = "cdi.kubevirt.io/v1beta1"
    items.append(obj("DataVolume", version, "cad", "vms", spec={}, status={"phase": "Pending"}))


@pytest.mark.parametrize(
    ("fault", "says", "remedy"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_what_a_start_would_meet(fault, says, remedy):
    items = off()
    fault(items)
    found = start_obstacles.of_stopped(*asked(items))

    assert says in found.reason
    assert remedy in found.remedy
    assert "by itself" not in found.reason.replace("does not end by itself", "")


@pytest.mark.parametrize("change", [row[1] for row in LIKE], ids=[row[0] for row in LIKE])
def test_what_keeps_no_vm_from_its_start(change):
    items = off()
    change(items)
    found = asked(items)

    assert start_obstacles.of_stopped(*found) is None
    assert next_starts.doubt(*found) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda items: without(items, CLAIM),
        lambda items: sized(items, SMALL, "copy-1"),
        lambda items: crashed(items, "virt-controller"),
    ],
)
def test_what_is_not_listed_may_exist(change):
    items = off()
    change(items)

    assert start_obstacles.of_stopped(*asked(items, "nodes")) is None


def test_the_instance_type_decides_where_a_vm_could_start():
    items = off()
    sized(items, SMALL | {"nodeSelector": {"kubernetes.io/hostname": "w2"}})

    assert start_candidates.start_target(*asked(items)).placement.certain == ("w2",)


# --- a volume of one node -------------------------------------------------------------------------


def used(on: str = "w2", mode: str = "ReadWriteOnce", **metadata: object) -> list[Object]:
    """Return a cluster in which a pod uses the disk of the VM."""
    items = off()
    find(items, CLAIM, "cad")["spec"]["accessModes"] = [mode]
    volume = {"name": "disk", "persistentVolumeClaim": {"claimName": "cad"}}
    rescue = pod("rescue", "vms", on, {}, None, spec={"volumes": [volume]})
    rescue["metadata"] |= metadata
    return [*items, rescue]


def test_another_pod_has_the_volume_that_one_node_can_attach():
    found = next_starts.doubt(*asked(used()))

    assert "pod rescue on w2 uses its claim cad" in found.reason
    assert "kube-scheduler may choose w1, w3" in found.reason
    assert found.remedy.endswith("kubectl describe pod rescue -n vms")
    assert start_obstacles.of_stopped(*asked(used())) is None


def test_no_node_that_takes_a_vm_can_attach_its_volume():
    items = used()
    demanding(items, nodeSelector={"kubernetes.io/hostname": "w1"})
    found = start_obstacles.of_stopped(*asked(items))

    assert "and only w1 can take it" in found.reason


@pytest.mark.parametrize(
    "items", [used(mode="ReadWriteMany"), used(deletionTimestamp=ago(seconds=20))]
)
def test_a_volume_that_a_start_gets(items):
    assert next_starts.doubt(*asked(items)) is None


def test_a_vm_starts_on_the_node_that_has_its_volume():
    items = used()
    demanding(items, nodeSelector={"kubernetes.io/hostname": "w2"})

    assert next_starts.doubt(*asked(items)) is None
    assert start_obstacles.of_stopped(*asked(items)) is None


# --- virtctl --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["False", "True", "Unknown"])
@pytest.mark.parametrize("run", ["Halted", "Manual", "Always"])
def test_virtctl_needs_the_api_of_virt_api(run, status):
    items = off(run)
    api = api_service("v1", "subresources.kubevirt.io", ("kubevirt", "virt-api"))
    api["status"]["conditions"][0] |= {"status": status, "reason": "FailedDiscoveryCheck"}
    found = vm_writes.refused_start(*asked([*items, api]))

    assert (found is not None) is (status == "False" and run != "Always")
    if found is not None:
        assert "APIService v1.subresources.kubevirt.io is not available" in found.reason
        assert "kubectl describe service virt-api -n kubevirt" in found.remedy
