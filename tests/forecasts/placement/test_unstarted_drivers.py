"""A driver whose pods do not start on a node: none of its volumes gets there, and its cause is that
of another pod of the same software.
"""

import pytest

from tests.builders import manifest, warning
from virt_admit.forecasts.placement.components import node_drivers
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.evidence import kernel_modules
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-11-26T12:00:00Z"
LONG_AGO = "2026-11-26T11:00:00Z"
DRIVER = "fast.disks.io"
LATE = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"


def node(name="a", kernel="5.14.0-503", system="Rocky Linux 9.5 (Blue Onyx)", cpu="amd64"):
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}
    info = {"kernelVersion": kernel, "osImage": system, "architecture": cpu}
    status = {"conditions": [ready], "nodeInfo": info}
    return manifest("v1", "Node", name, status=status)


def pod(daemon, *, on="a", namespace="disks", **status):
    owner = {"kind": "DaemonSet", "name": daemon, "controller": True}
    spec = {"nodeName": on, "containers": [{"name": "main"}]}
    name = f"{daemon}-{on}"
    metadata = {"ownerReferences": [owner]}
    return manifest("v1", "Pod", name, namespace, spec=spec, status=status, metadata=metadata)


def waiting(daemon="disks-csi-node", since=LONG_AGO, **fields):
    unready = {"type": "Ready", "status": "False", "lastTransitionTime": since}
    boxes = [{"name": "main", "ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}]
    status = {"phase": "Pending", "conditions": [unready], "containerStatuses": boxes}
    return pod(daemon, **(status | fields))


def crashing(daemon="disks-agent", said="no module for this kernel: disks.ko is missing", **fields):
    ended = {"terminated": {"exitCode": 1, "message": said}}
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    box = {"name": "loader", "ready": False, "state": state, "lastState": ended}
    return waiting(daemon, initContainerStatuses=[box], **fields)


def running(daemon="disks-csi-node", **fields):
    boxes = [{"name": "main", "ready": True, "state": {"running": {}}}]
    ready = [{"type": "Ready", "status": "True"}]
    return pod(daemon, phase="Running", conditions=ready, containerStatuses=boxes, **fields)


def cluster(*objects):
    drivers = {"drivers": [{"name": DRIVER}]}
    known = [manifest("storage.k8s.io/v1", "CSINode", "a", spec=drivers), node()]
    return Snapshot([*known, *objects], ["*"], time=NOW)


def test_the_pod_that_tells_the_cause_is_named():
    found = cluster(waiting(), crashing(), crashing("net", namespace="disks"))

    assert node_drivers.lacking(found) == {"a": {DRIVER}}
    reason = node_drivers.reasons(found)["a"][DRIVER]
    assert reason.startswith(
        f"CSI driver {DRIVER} is not registered on a (pod disks-csi-node-a is not ready for 60 min,"
        " and pod disks-agent-a is not ready for 60 min: CrashLoopBackOff, init container loader"
    )
    assert "kubectl logs disks-agent-a -n disks -c loader" in node_drivers.remedy(
        DRIVER, "a", found
    )


@pytest.mark.parametrize(
    "own",
    [
        waiting(since="2026-11-26T11:57:00Z"),
        running(),
        waiting(containerStatuses=[{"name": "main", "ready": False, "state": {"running": {}}}]),
    ],
    ids=["starts", "ready", "runs"],
)
def test_a_driver_that_runs_is_not_lacking(own):
    assert node_drivers.lacking(cluster(own, crashing("net"))) == {}


@pytest.mark.parametrize("twin", ["disks-csi-node-v", "disks-csi-node"], ids=["other", "surge"])
def test_a_driver_of_which_another_pod_runs_is_not_lacking(twin):
    second = running(twin)
    second.data["metadata"]["name"] = f"z-{twin}"
    found = cluster(waiting(), second)
    assert node_drivers.lacking(found) == {}
    assert node_drivers.because(DRIVER, "a", found) == ""


def looping(*boxes, **fields):
    """Return a pod of the driver, of which these containers crash again and again."""
    loop = {"waiting": {"reason": "CrashLoopBackOff"}}
    down = [{"name": each, "ready": False, "state": loop} for each in boxes]
    up = [{"name": "node-driver-registrar", "ready": True, "state": {"running": {}}}]
    return waiting(phase="Running", containerStatuses=[*down, *up], **fields)


def test_a_driver_that_crashes_stays_registered_and_works_no_more():
    found = cluster(looping("main"))

    assert node_drivers.reasons(found)["a"][DRIVER] == (
        f"CSI driver {DRIVER} does not work on a (pod disks-csi-node-a is not ready for 60 min: "
        "CrashLoopBackOff)"
    )
    assert "kubectl logs disks-csi-node-a" in node_drivers.remedy(DRIVER, "a", found)


@pytest.mark.parametrize(
    ("down", "up"), [("csi-rbdplugin", "csi-cephfsplugin"), ("csi-cephfsplugin", "csi-rbdplugin")]
)
@pytest.mark.parametrize("how", [looping, lambda _, daemon: waiting(daemon)], ids=["crash", "wait"])
def test_the_pod_of_another_driver_of_the_same_software_does_not_serve_this_one(down, up, how):
    named = {f"csi-{each}plugin": f"rook-ceph.{each}.csi.ceph.com" for each in ("rbd", "cephfs")}
    drivers = {"drivers": [{"name": each} for each in named.values()]}
    csi = manifest("storage.k8s.io/v1", "CSINode", "a", spec=drivers)
    found = Snapshot([csi, node(), how("main", daemon=down), running(up)], ["*"], time=NOW)
    assert node_drivers.lacking(found) == {"a": {named[down]}}
    assert f"(pod {down}-a is not ready" in node_drivers.reasons(found)["a"][named[down]]


@pytest.mark.parametrize(
    "pods",
    [
        [looping("liveness-probe")],
        [looping("main", since="2026-11-26T11:57:00Z")],
        [looping("main"), running("disks-csi-node-v")],
    ],
    ids=["helper", "young", "another-pod-runs"],
)
def test_a_driver_that_may_work_is_not_lacking(pods):
    assert node_drivers.lacking(cluster(*pods)) == {}


def replaced(*, state=None, restarts=0, age="11:57:00", gone=""):
    """Return the pod of the driver as a roll-out has just made it."""
    state = state or {"waiting": {"reason": "ContainerCreating"}}
    box = {"name": "main", "ready": False, "state": state, "restartCount": restarts}
    found = waiting(since=f"2026-11-26T{age}Z", containerStatuses=[box])
    found.metadata.value["creationTimestamp"] = f"2026-11-26T{age}Z"
    if gone:
        found.metadata.value["deletionTimestamp"] = f"2026-11-26T{gone}Z"
    return found


BACK_OFF = {"waiting": {"reason": "ImagePullBackOff"}}
ENDS = {"terminated": {"exitCode": 2}}


@pytest.mark.parametrize(
    ("own", "lacks"),
    [
        (replaced(), False),
        (replaced(state={"running": {}}), False),
        (replaced(age="10:00:00", gone="12:00:20", state=ENDS), False),
        (replaced(age="10:00:00", gone="11:50:00", state=ENDS), True),
        (replaced(age="11:54:00"), True),
        (replaced(restarts=1), True),
        (replaced(state=BACK_OFF), True),
        (replaced(state=ENDS), True),
        (None, True),
    ],
    ids=["young", "runs", "ends", "stays", "old", "restarted", "back-off", "failed", "without"],
)
def test_a_driver_whose_pod_is_being_replaced_registers_soon(own, lacks):
    drivers = [{"name": DRIVER}]
    nodes = [
        manifest("storage.k8s.io/v1", "CSINode", name, spec={"drivers": listed})
        for name, listed in (("a", []), ("b", drivers))
    ]
    pods = filter(None, (own, running(on="b")))
    found = Snapshot([*nodes, node(), node("b"), *pods], ["*"], time=NOW)

    assert node_drivers.lacking(found) == ({"a": {DRIVER}} if lacks else {})


@pytest.mark.parametrize("other", [crashing("net"), crashing(namespace="other")])
def test_pods_of_other_software_are_not_the_cause(other):
    found = cluster(waiting(), other)
    assert node_drivers.agent(DRIVER, "a", found).pod.name == "disks-csi-node-a"


def starting(*pods):
    """Return why a pod does not start whose volume the driver does not attach in time."""
    claim = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    launcher = manifest("v1", "Pod", "vm", "shop", spec={"nodeName": "a", "volumes": claim})
    csi = {"csi": {"driver": DRIVER}}
    spec = {"attacher": DRIVER, "nodeName": "a", "source": {"persistentVolumeName": "pv"}}
    error = {"attached": False, "attachError": {"message": LATE, "time": NOW}}
    objects = (
        launcher,
        manifest("v1", "PersistentVolumeClaim", "data", "shop", spec={"volumeName": "pv"}),
        manifest("v1", "PersistentVolume", "pv", spec=csi),
        manifest("storage.k8s.io/v1", "VolumeAttachment", "x", spec=spec, status=error),
    )
    return pod_starts.fault(launcher, cluster(*objects, *pods))


def test_a_volume_that_is_not_attached_where_the_pods_of_its_driver_are_broken():
    fault = starting(waiting(), crashing())
    assert fault.of_node
    assert fault.words.startswith("volume pv of claim data cannot be attached: rpc error: code = D")
    assert f", and CSI driver {DRIVER} is not registered on a (pod disks-csi-node" in fault.words
    assert fault.brief.startswith(f"{DRIVER} attaches no volume on a: pod disks-agent-a is not")
    assert "kubectl logs disks-agent-a" in fault.remedy


@pytest.mark.parametrize("pods", [(running(),), (waiting(since=NOW),), (running(), crashing())])
def test_a_driver_whose_pods_work_is_not_the_cause(pods):
    fault = starting(*pods)
    assert not fault.of_node
    assert f", and CSI driver {DRIVER}" not in fault.words


@pytest.mark.parametrize(("since", "lacks"), [("11:58", False), ("11:40", True), (None, True)])
def test_a_driver_that_is_back_since_its_absence_was_reported(since, lacks):
    user = manifest("v1", "Pod", "p", "shop", spec={"nodeName": "a"}, status={"phase": "Pending"})
    event = warning(
        user,
        "FailedMount",
        f"driver name {DRIVER} not found in the list of registered CSI drivers",
        "2026-11-26T11:57:00Z",
        firstTimestamp="2026-11-26T11:50:00Z",
    )
    own = running()
    own.data["status"]["conditions"][0] |= (
        {"lastTransitionTime": f"2026-11-26T{since}:00Z"} if since else {}
    )
    assert bool(node_drivers.lacking(cluster(user, event, own))) is lacks


def test_an_entry_without_a_name_is_not_a_driver():
    entries = {"a": [{"nodeID": "a"}], "b": [{"name": DRIVER}, {"name": 1}, {"name": ""}]}
    nodes = [
        manifest("storage.k8s.io/v1", "CSINode", name, spec={"drivers": drivers})
        for name, drivers in entries.items()
    ]
    assert node_drivers.lacking(Snapshot(nodes, ["*"], time=NOW)) == {"a": {DRIVER}}


def loaded(on, daemon="disks-agent", **fields):
    box = {"name": "loader", "ready": True, **fields}
    return running(daemon, on=on, initContainerStatuses=[box])


def kernels(*objects, said="modprobe: module disks not found"):
    own = crashing()
    own.data["status"]["initContainerStatuses"][0]["image"] = "quay.io/disks/loader:2"
    return kernel_modules.of_end(own, "loader", said, Snapshot(list(objects), ["*"]))


def test_a_module_that_lacks_for_one_kernel():
    older = node("b", "5.14.0-427", "Rocky Linux 9.4 (Blue Onyx)")
    found = kernels(node(), older, loaded("b"))
    assert found.reason == "a runs kernel 5.14.0-503, while loader works with 5.14.0-427 on b"
    assert "or boot it with 5.14.0-427; until then boot no other node with 5.14.0-5" in found.remedy


def test_a_kernel_is_not_the_cause():
    assert kernels(node(), node("b"), loaded("b")) is None
    assert kernels(node(), node("b", "5.14.0-427")) is None
    other = (node(), node("b", "5.14.0-427"), loaded("b"))
    assert kernels(*other, said="connection refused") is None


def test_many_pods_that_lack_a_module_are_compared_by_one_walk(monkeypatch):
    boxes, walked = kernel_modules.container_statuses, []
    counted = lambda each: walked.append(each) or boxes(each)  # noqa: E731
    monkeypatch.setattr(kernel_modules, "container_statuses", counted)
    known = [node("b", "5.14.0-427"), loaded("b")]
    broken = [crashing(on=f"n{number}") for number in range(20)]
    nodes = [node(f"n{number}") for number in range(20)]
    cluster = Snapshot([*known, *broken, *nodes], ["*"])
    assert all(kernel_modules.of_end(each, "loader", "no disks.ko", cluster) for each in broken)
    assert len(walked) == 20 + 1


@pytest.mark.parametrize(
    "said",
    [
        "modprobe: ERROR: could not insert 'nvidia': No such device",
        "Loading kernel module\nmodprobe: cannot insert disks.ko: Key was rejected by service",
    ],
)
def test_a_module_that_the_kernel_refuses_is_there(said):
    assert kernels(node(), node("b", "5.14.0-427"), loaded("b"), said=said) is None


@pytest.mark.parametrize(
    ("image", "is_same"),
    [("quay.io/disks/loader:1", True), ("quay.io/disks/other:2", False), (None, False)],
)
def test_a_container_of_another_workload_is_not_the_same(image, is_same):
    found = kernels(node(), node("b", "5.14.0-427"), loaded("b", "other-b", image=image))
    assert (found is not None) is is_same


@pytest.mark.parametrize(
    "fields", [{"system": "Ubuntu 22.04.5 LTS"}, {"cpu": "arm64"}, {"system": ""}]
)
def test_a_kernel_of_another_system_is_not_compared(fields):
    assert kernels(node(**fields), node("b", "5.14.0-427"), loaded("b")) is None


# --- a kubelet with another root directory --------------------------------------------------------

REGISTRY = "/var/lib/kubelet/plugins_registry"


def unregistered(arguments, registry=REGISTRY, key="k3s.io/node-args", other="", since=LONG_AGO):
    """Return why node a lacks the driver of node b, and what helps. Its pod there runs.

    ``other``: the arguments of node b.
    """
    own = running()
    own.data["status"]["conditions"][0]["lastTransitionTime"] = since
    own.data["spec"]["volumes"] = [{"name": "r", "hostPath": {"path": registry}}]
    here = manifest("storage.k8s.io/v1", "CSINode", "a", spec={"drivers": None})
    there = manifest("storage.k8s.io/v1", "CSINode", "b", spec={"drivers": [{"name": DRIVER}]})
    one, two = node(), node("b")
    one.data["metadata"]["annotations"] = {key: arguments}
    two.data["metadata"]["annotations"] = {key: other} if other else {}
    found = Snapshot([here, there, one, two, own, running(on="b")], ["*"], time=NOW)
    return node_drivers.reasons(found)["a"][DRIVER], node_drivers.remedy(DRIVER, "a", found)


OTHER = '["agent", "--kubelet-arg", "root-dir=/data/kubelet"]'


@pytest.mark.parametrize(
    ("arguments", "registry", "key"),
    [
        (OTHER, REGISTRY, "k3s.io/node-args"),
        (
            '["agent", "--kubelet-arg=--root-dir=/data/kubelet/"]',
            f"{REGISTRY}/",
            "rke2.io/node-args",
        ),
    ],
)
def test_a_kubelet_does_not_look_where_the_driver_registers(arguments, registry, key):
    reason, remedy = unregistered(arguments, registry, key)
    assert f"registers in {REGISTRY}, but the kubelet of a has root-dir /data/kubelet" in reason
    assert key in reason
    assert remedy.startswith("give the kubelet of a the root directory /var/lib/kubelet (the disk")
    assert remedy.endswith("kubectl cordon a")
    assert "/var/lib/kubelet, as on other" in unregistered(arguments, registry, key, '["agent"]')[1]


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (OTHER, {"registry": "/data/kubelet/plugins_registry"}),
        ('["agent"]', {}),
        ("[", {}),
        (OTHER, {"key": "example.com/node-args"}),
        (OTHER, {"registry": "/var/lib/disks"}),
        (OTHER, {"other": OTHER}),
        (OTHER, {"other": OTHER.replace("data", "srv")}),
        (OTHER, {"since": "2026-11-26T11:58:00Z"}),
    ],
    ids=[
        "the same",
        "the default",
        "not readable",
        "another annotation",
        "not of a kubelet",
        "served elsewhere with that root",
        "served elsewhere with a third root",
        "the pod has just become ready",
    ],
)
def test_the_root_directory_is_not_the_cause(arguments, fields):
    reason, remedy = unregistered(arguments, **fields)
    assert "root-dir" not in reason
    assert remedy.startswith("repair pod disks-csi-node-a on a")


# --- a pod that is older than the return of its node ----------------------------------------------


def older(started="2026-11-20T08:00:00Z", since=LONG_AGO, lists=None, ready=True):
    """Return why node a lacks the driver, and what helps, without a command and with it.

    Its pod there runs since ``started``, the node is Ready since ``since``, and has the drivers in
    ``lists``.
    """
    own = running()
    state = {"running": {"startedAt": started}}
    own.data["status"]["containerStatuses"] = [
        {"name": "main", "ready": ready, "state": {"running": {}}},
        {"name": "registrar", "ready": ready, "state": state},
    ]
    here = manifest("storage.k8s.io/v1", "CSINode", "a", spec={"drivers": lists})
    there = manifest("storage.k8s.io/v1", "CSINode", "b", spec={"drivers": [{"name": DRIVER}]})
    one = node()
    one.data["status"]["conditions"][0]["lastTransitionTime"] = since
    found = Snapshot([here, there, one, node("b"), own, running(on="b")], ["*"], time=NOW)
    every = (node_drivers.because, node_drivers.words, node_drivers.remedy)
    return tuple(each(DRIVER, "a", found) for each in every)


def test_a_pod_older_than_the_return_of_its_node_is_replaced():
    reason, words, remedy = older()
    assert (
        f"its pod disks-csi-node-a there runs since 2026-11-20T08:00:00Z, but a became Ready "
        f"again at {LONG_AGO}"
    ) in reason
    assert words == (
        "if no guest on a uses a volume with FUSE or rbd-nbd, which it would lose, replace pod "
        "disks-csi-node-a there, so that it registers again"
    )
    assert remedy == f"{words}: kubectl delete pod disks-csi-node-a -n disks"


@pytest.mark.parametrize(
    "fields",
    [
        {"started": "2026-11-26T11:30:00Z"},
        {"since": "2026-11-26T11:55:00Z"},
        {"lists": [{"name": DRIVER}]},
    ],
    ids=["started again", "the kubelet has just started", "registered"],
)
def test_the_age_of_the_pod_is_not_the_cause(fields):
    reason, _, remedy = older(**fields)
    assert reason == ""
    assert "delete pod" not in remedy
