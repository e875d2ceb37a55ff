"""What Longhorn waits for while a pod waits for a volume: the object of Longhorn is named,
and what repairs it.
"""

import pytest

from tests.advice import risky
from tests.builders import NAMESPACE, complete, manifest, node
from tests.forecasts.drain.test_target_pods import BLOCKS, SCHEDULING, pending, warning
from tests.forecasts.drain.test_vm_states import LAUNCHER, MARKED, MIGRATES, UNKNOWN, row
from tests.forecasts.drain.vm_motion import ago, cluster, vmi
from virt_admit.forecasts.placement.components import longhorn_starts

LONGHORN = "longhorn-system"
IMAGE = "longhorn-engine:1"
FAILED = "2027-03-01T09:00:00Z"


def own(kind, name, spec, **fields):
    return manifest("longhorn.io/v1beta2", kind, name, LONGHORN, spec=spec, **fields)


def instance(kind, name, on, state, wanted="running", *, conditions=(), **spec):
    spec = {"volumeName": "v1", "nodeID": on, "desireState": wanted, "image": IMAGE, **spec}
    return own(kind, name, spec, status={"currentState": state, "conditions": list(conditions)})


def engine(name, on, state, wanted="running", **fields):
    return instance("Engine", name, on, state, wanted, **fields)


def replica(name, on, state, wanted="running", **fields):
    return instance("Replica", name, on, state, wanted, **{"engineName": "v1-e-0", **fields})


def volume(to="", on="", driver=longhorn_starts.DRIVER):
    """Return a PersistentVolume with its volume of Longhorn; ``to``:
    the node to which that migrates.
    """
    csi = {"driver": driver, "volumeHandle": "v1"}
    spec = {"migrationNodeID": to, "nodeID": on}
    status = {"currentNodeID": on, "state": "attached" if on else "attaching"}
    return [
        manifest("v1", "PersistentVolume", "pv", spec={"csi": csi}),
        own("Volume", "v1", spec, status=status),
    ]


def image(on, deployed):
    return own(
        "EngineImage",
        "ei-1",
        {"image": IMAGE},
        status={"nodeDeploymentMap": {on: deployed, "b": True}},
    )


DAEMON = manifest(
    "apps/v1", "DaemonSet", "engine-image-ei-1", LONGHORN, spec={"template": {"spec": {}}}
)
STARTING = [
    *volume(),
    engine("v1-e-0", "b", "stopped", "stopped"),
    replica("v1-r-1", "a", "stopped"),
    replica("v1-r-2", "b", "running"),
]


def found(*objects, on="b"):
    return longhorn_starts.cause("pv", on, complete(node("b"), *objects))


def daemon_pod(of, on, **status):
    owner = {"kind": "DaemonSet", "name": of, "controller": True}
    return manifest(
        "v1",
        "Pod",
        f"{of}-x",
        LONGHORN,
        metadata={"ownerReferences": [owner]},
        spec={"nodeName": on},
        status=status,
    )


def test_a_replica_waits_for_an_engine_image_that_its_node_does_not_take():
    tainted = node("a", taints=[{"key": "dedicated", "value": "storage", "effect": "NoSchedule"}])
    cause = found(*STARTING, image("a", False), DAEMON, tainted)

    assert cause.words == (
        "Longhorn waits for replica …-r-1 on a (stopped): engine image ei-1 is not deployed there, "
        "DaemonSet longhorn-system/engine-image-ei-1 does not tolerate taint "
        "dedicated=storage:NoSchedule"
    )
    assert (
        "by Longhorn's setting taint-toleration, which Longhorn applies once all its volumes are "
        "detached (or, as a decision, take the taint off a)"
    ) in cause.remedy
    assert cause.lasts


def test_the_pod_of_an_engine_image_is_broken():
    pod = daemon_pod("engine-image-ei-1", "a", conditions=[{"type": "Ready", "status": "False"}])
    cause = found(*STARTING, image("a", False), DAEMON, node("a"), pod)

    assert (
        "engine image ei-1 is not deployed there, pod engine-image-ei-1-x is not ready"
        in cause.words
    )
    assert not cause.lasts


@pytest.mark.parametrize(
    ("more", "says", "remedy"),
    [
        ([node("a", ready="Unknown")], "a does not report", "repair a: kubectl describe node a"),
        (
            [own("InstanceManager", "im-a", {"nodeID": "a"}, status={"currentState": "error"})],
            "instance manager im-a does not run (error)",
            "kubectl describe pod im-a",
        ),
        (
            [daemon_pod("longhorn-manager", "a")],
            "Longhorn waits for replica …-r-1 on a (stopped)",
            "see why longhorn-manager on a does not start it: kubectl logs longhorn-manager-x",
        ),
        ([], "replica …-r-1 on a (stopped)", "kubectl describe replica v1-r-1"),
    ],
    ids=[
        "its node is silent",
        "its instance manager fails",
        "nothing says why",
        "no pod is known either",
    ],
)
def test_what_keeps_a_replica_from_starting(more, says, remedy):
    cause = found(*STARTING, *more)

    assert says in cause.words
    assert remedy in cause.remedy


def test_longhorn_itself_says_why():
    about = {"kind": "Replica", "name": "v1-r-1", "namespace": LONGHORN}
    said = {
        "reason": "FailedStarting",
        "message": "Error starting v1-r-1: no port is free",
        "type": "Warning",
    }
    event = manifest(
        "v1", "Event", "x", LONGHORN, involvedObject=about, lastTimestamp=ago(20), **said
    )
    refused = {"type": "InstanceCreation", "status": "False", "message": "disk is gone"}
    stopped = engine("v1-e-0", "b", "error", conditions=[refused])

    assert found(*STARTING, event).words.endswith("(stopped): Longhorn says no port is free")
    assert (
        found(*volume(), stopped).words
        == "Longhorn's engine …-e-0 on b should run and is error: Longhorn says disk is gone"
    )


COPIED = [
    *volume(to="b", on="a"),
    engine("v1-e-0", "a", "running"),
    engine("v1-e-1", "b", "stopped"),
    replica("v1-r-1", "b", "running", lastFailedAt=FAILED),
    replica("v1-r-2", "b", "stopped", "stopped", engineName="v1-e-1", lastFailedAt=FAILED),
    replica("v1-r-3", "a", "running", engineName="v1-e-1"),
]


def release(version):
    return manifest(
        "longhorn.io/v1beta2", "Setting", "current-longhorn-version", LONGHORN, value=version
    )


@pytest.mark.parametrize("known", [[], [release("v1.10.1")]])
def test_a_copy_that_inherits_the_time_of_a_failure_is_never_used(known):
    cause = found(*COPIED, *known)

    assert cause.words.startswith(
        "Longhorn's migration engine …-e-1 does not run, it waits for replica …-r-2 on b (stopped)"
    )
    assert f"this copy has lastFailedAt {FAILED} of its source" in cause.words
    assert cause.remedy.startswith("update Longhorn to 1.10.2 or later")
    assert cause.lasts


def test_a_release_that_ignores_the_time_is_not_blamed():
    cause = found(*COPIED, release("v1.11.0"))

    assert "lastFailedAt" not in cause.words
    assert not cause.lasts


def own_node(ready):
    """The node c, whose kubelet says this of itself."""
    said = {"type": "Ready", "status": ready}
    return manifest("v1", "Node", "c", status={"conditions": [said]})


def kept_on_c(*objects, ticket="longhorn-api", claim="disk", ready="True", key="ui"):
    """Return why a volume is not attached to b that a ticket keeps on c; no ``ready``: its Node is
    gone.
    """
    tickets = {
        "csi-1": {"nodeID": "b", "type": "csi-attacher"},
        key: {"nodeID": "c", "type": ticket},
    }
    said = {
        "type": "Satisfied",
        "status": "False",
        "message": "the volume is currently attached to different node c ",
    }
    status = {"attachmentTicketStatuses": {"csi-1": {"satisfied": False, "conditions": [said]}}}
    spec = {"volume": "v1", "attachmentTickets": tickets}
    seen = {"kubernetesStatus": {"namespace": NAMESPACE, "pvcName": claim, "pvName": "pv"}}
    pv, _ = volume(on="c")
    of_longhorn = own(
        "Volume", "v1", {}, status={"currentNodeID": "c", "state": "attached", **seen}
    )
    kept = own("VolumeAttachment", "v1", spec, status=status)
    nodes = [own_node(ready)] if ready else []
    return found(pv, of_longhorn, engine("v1-e-0", "c", "running"), kept, *nodes, *objects)


def user(on, phase="Running"):
    claim = {"persistentVolumeClaim": {"claimName": "disk"}}
    spec = {"nodeName": on, "volumes": [{"name": "d", **claim}]}
    return manifest("v1", "Pod", "p", NAMESPACE, spec=spec, status={"phase": phase})


@pytest.mark.parametrize("objects", [[], [user("b", "Pending")], [user("c", "Succeeded")]])
def test_a_ticket_that_was_left_behind_keeps_a_volume_on_another_node(objects):
    cause = kept_on_c(*objects)

    assert cause.words.endswith(
        "attached to different node c; ticket ui (longhorn-api) keeps it on c, where no pod uses it"
    )
    assert cause.remedy.startswith(
        "take that ticket out, with a detach on Longhorn's page or with "
    )
    assert cause.remedy.endswith(
        ": kubectl patch volumeattachments.longhorn.io v1 -n longhorn-system --type=json -p "
        """'[{"op":"remove","path":"/spec/attachmentTickets/ui"}]'"""
    )


def test_a_ticket_of_a_maintenance_has_an_empty_id():
    cause = kept_on_c(key="")

    assert "; ticket with an empty id (longhorn-api) keeps it on c" in cause.words
    assert '"path":"/spec/attachmentTickets/"' in cause.remedy


def test_a_ticket_of_kubernetes_is_not_taken_out_by_hand():
    cause = kept_on_c(ticket="csi-attacher")

    assert cause.words.endswith("keeps it on c, where no pod uses it")
    assert cause.remedy.startswith("see why it is not detached from c: kubectl describe ")


@pytest.mark.parametrize(
    ("ready", "words", "see"),
    [
        ("Unknown", "keeps it on c, which does not report", "virt-admit explain node/c"),
        (
            "",
            "keeps it on c, a node that does not exist",
            "kubectl describe volumeattachments.longhorn.io v1",
        ),
    ],
)
def test_a_node_that_does_not_report_may_use_the_volume(ready, words, see):
    cause = kept_on_c(ready=ready)

    assert cause.words.endswith(words)
    use = f"see whether c still uses the volume, since a guest may run on there: {see}"
    assert cause.remedy.startswith(
        f"detach the volume on Longhorn's page only once c is off; {use}"
    )
    assert kept_on_c(ready=ready, ticket="csi-attacher").remedy.startswith(use)
    assert "patch" not in cause.remedy


ATTACHED = manifest(
    "storage.k8s.io/v1",
    "VolumeAttachment",
    "csi-2",
    spec={"nodeName": "c", "source": {"persistentVolumeName": "pv"}},
)


@pytest.mark.parametrize(
    ("claim", "objects"), [("disk", [user("c")]), ("disk", [ATTACHED]), ("", [])]
)
def test_a_volume_is_kept_on_another_node(claim, objects):
    cause = kept_on_c(*objects, claim=claim)

    assert cause.words.endswith(
        "attached to different node c; ticket ui (longhorn-api) keeps it on c"
    )
    assert cause.remedy.startswith("end what uses the volume on c")


def test_no_migration_of_a_volume_starts_before_the_last_one_has_ended():
    tickets = {"csi-1": {"nodeID": "b"}, "csi-2": {"nodeID": "a"}, "csi-3": {"nodeID": "c"}}
    said = {
        "type": "Satisfied",
        "status": "False",
        "message": "the volume is currently attached to different node a",
    }
    status = {"attachmentTicketStatuses": {"csi-1": {"satisfied": False, "conditions": [said]}}}
    kept = own(
        "VolumeAttachment", "v1", {"volume": "v1", "attachmentTickets": tickets}, status=status
    )
    cause = found(
        *volume(on="a", to="c"),
        engine("v1-e-0", "a", "running"),
        engine("v1-e-1", "c", "running"),
        kept,
    )

    assert cause.words.startswith(
        "Longhorn still migrates it from a to c, and starts no other migration"
    )


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([], id="nothing is known"),
        pytest.param(volume(), id="no engine is known"),
        pytest.param(
            [*volume(on="b"), engine("v1-e-0", "b", "running"), replica("v1-r-1", "a", "stopped")],
            id="it runs",
        ),
        pytest.param(
            [*volume(driver="other")[:1], *STARTING[1:]], id="the volume is not of Longhorn"
        ),
        pytest.param(
            [*volume(to="b", on="a"), engine("v1-e-1", "b", "running")], id="both engines run"
        ),
    ],
)
def test_a_volume_of_which_nothing_is_wrong_is_not_blamed(objects):
    assert found(*objects) is None


CLAIM = manifest(
    "v1",
    "PersistentVolumeClaim",
    "disk",
    NAMESPACE,
    spec={"accessModes": ["ReadWriteMany"], "volumeName": "pv"},
)
LATE = (
    "rpc error: code = DeadlineExceeded desc = volume v1 failed to attach to node b with "
    "attachmentID csi-b"
)


def moving(*objects, failed=True, event=False):
    """Return a VM whose migration waits for a volume."""
    pod = pending(age=500)
    pod.data["spec"]["volumes"] = [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]
    status = {"attached": False} | ({"attachError": {"message": LATE}} if failed else {})
    spec = {"nodeName": "b", "source": {"persistentVolumeName": "pv"}}
    attachment = manifest(
        "storage.k8s.io/v1", "VolumeAttachment", "csi-b", spec=spec, status=status
    )
    said = warning(
        pod, "FailedAttachVolume", f'AttachVolume.Attach failed for volume "pv" : {LATE}'
    )
    more = [said] if event else [attachment]
    return row(cluster(vmi(**MARKED), LAUNCHER, SCHEDULING, pod, CLAIM, *more, *objects))


@pytest.mark.parametrize("event", [False, True])
def test_a_migration_that_meets_the_same_cause_again_has_no_end(event):
    result = moving(*COPIED, event=event)

    assert result.outcome == BLOCKS
    assert (
        "cannot be attached (DeadlineExceeded): Longhorn's migration engine …-e-1 does not run"
        in result.reason
    )
    assert "Each retry fails alike" in result.reason
    assert (
        "kubectl get engines.longhorn.io,replicas.longhorn.io -n longhorn-system -l "
        "longhornvolume=v1"
    ) in result.remedy
    assert not risky(f"{result.reason}: {result.remedy}")


def test_without_objects_of_longhorn_the_error_of_the_driver_remains():
    result = moving(volume()[0])

    assert result.outcome == UNKNOWN
    assert (
        "cannot be attached: rpc error: code = DeadlineExceeded desc = volume v1 failed to "
        "attach to node b"
    ) in result.reason
    assert (
        "see what the controller of driver driver.longhorn.io logs about it: kubectl describe "
        "persistentvolume pv"
    ) in result.remedy


def test_a_migration_whose_engine_just_starts_is_not_stuck():
    assert moving(*COPIED, failed=False).outcome == MIGRATES


def test_a_manager_of_no_node_is_not_the_fault_of_the_node_of_a_pod():
    full = {"phase": "Failed", "reason": "NodeAffinity", "message": "No match"}
    objects = (
        *volume(to="b", on="a"),
        engine("v1-e-1", "", "stopped"),
        own("InstanceManager", "im-x", {"nodeID": ""}, status={"currentState": "error"}),
        manifest("v1", "Pod", "im-x", LONGHORN, status=full),
    )
    cause = found(*objects)

    assert "NodeAffinity" in cause.words
    assert not cause.of_node


def test_the_kubelet_refuses_the_instance_manager_of_the_node():
    full = "Node didn't have enough resource: cpu, requested: 960, used: 7360, capacity: 8000"
    refused = manifest(
        "v1",
        "Pod",
        "im-b",
        LONGHORN,
        spec={"nodeName": "b"},
        status={"phase": "Failed", "reason": "OutOfcpu", "message": full},
    )
    manager = own("InstanceManager", "im-b", {"nodeID": "b"}, status={"currentState": "error"})
    cause = found(*volume(), engine("v1-e-0", "b", "stopped"), manager, refused)

    assert cause.words == (
        "Longhorn attaches no volume on b: instance manager im-b does not run: OutOfcpu, its pod "
        "requests 960m of cpu, and 7360m of 8 are in use"
    )
    assert cause.remedy == (
        "free 320m of cpu on b, or set a smaller spec.instanceManagerCPURequest in Longhorn's node "
        "b: kubectl describe node b"
    )
    assert cause.of_node
