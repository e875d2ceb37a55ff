"""Nodes that hold as many volumes of a driver as they may."""

from tests.builders import claim, manifest, node
from virt_admit.forecasts.placement.refusals import busy_nodes, volume_limits
from virt_admit.model.kubernetes.cluster import Snapshot

DRIVER = "csi.vsphere.vmware.com"
FULL = f"volumes of {DRIVER}: 2 of 2 in use, needs 2"
SET = {"kind": "StatefulSet", "name": "minio", "controller": True}


def bound(name):
    own = claim(name, "ReadWriteOnce")
    own.data["spec"] |= {"volumeName": f"pv-{name}", "storageClassName": "vsphere"}
    own.data["status"] = {"phase": "Bound"}
    csi = {"driver": DRIVER, "volumeHandle": name}
    return own, manifest("v1", "PersistentVolume", f"pv-{name}", spec={"csi": csi})


def pod(name, on, *claims, **metadata):
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    spec = {"nodeName": on, "volumes": volumes}
    return manifest("v1", "Pod", name, "shop", metadata=metadata, spec=spec)


def full_nodes():
    items = [
        *bound("x"),
        *bound("y"),
        *bound("z"),
        pod("minio-0", "b", "x", "y", ownerReferences=[SET]),
        pod("alone", "c", "z"),
        node("b"),
        node("c"),
    ]
    return Snapshot(items, ["*"])


def found(refusals):
    return volume_limits.of(refusals, full_nodes())


def test_who_holds_the_volumes_is_named():
    problem = found({"b": FULL, "c": FULL.replace("needs 2", "needs 1")})

    assert problem.reason == (": StatefulSet shop/minio holds 2 on b, pod shop/alone holds 1 on c")
    assert problem.remedy.startswith(f"take 1 volume of {DRIVER} away from c")
    assert "(move or stop pods that hold them): kubectl get pods" in problem.remedy


def test_another_cause_of_a_node_is_not_repaired_by_that():
    assert found({"b": FULL, "c": "cordoned"}) is None
    assert found({"b": f"{FULL}; cordoned"}) is None
    assert found({"b": FULL.replace(DRIVER, "other")}) is None


def test_the_holders_are_looked_up_once_for_all_vms(monkeypatch):
    asked, cluster, holder = [], full_nodes(), volume_limits._holder
    monkeypatch.setattr(
        volume_limits, "_holder", lambda *args: asked.append(args[0].name) or holder(*args)
    )

    said = {volume_limits.of({"b": FULL, "c": FULL}, cluster).reason for _ in range(3)}

    assert len(said) == 1
    assert sorted(asked) == ["alone", "minio-0"]


def closed(why):
    """Return what is said where node a is cordoned and b refuses a pod for this cause."""
    cordoned = Snapshot([node("a", unschedulable=True), node("b")], ["*"])
    return busy_nodes.not_ready_now({"a": "cordoned", "b": why}, cordoned, starts=True)


def test_a_limit_is_told_beside_a_cordon_and_helps_while_that_lasts():
    problem = closed(FULL)
    assert "a (cordoned); too few of the 2 volumes of csi.vsphere.vmware.com are left on b" in (
        problem.reason
    )
    assert "kubectl uncordon a; or, while that lasts, take 2 volumes of" in problem.remedy
    assert "MAX_VOLUMES_PER_NODE of its DaemonSet, above 59 before driver 3.2 only" in (
        problem.remedy
    )
    assert "internal-feature-states.csi.vsphere.vmware.com" in problem.remedy


def test_a_node_that_lacks_more_than_volumes_is_not_named_for_them():
    problem = closed(f"{FULL}; node selector zone=1")
    assert "volumes" not in f"{problem.reason} {problem.remedy}"
    assert problem.command == "kubectl uncordon a"
