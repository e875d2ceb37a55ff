"""Clones of claims in another class, which their driver does not make."""

from __future__ import annotations

import pytest

from tests.builders import manifest, warning
from virt_admit.forecasts.drain.starts.storage import provisioners
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of
from virt_admit.model.problems import Problem

NOW = "2027-03-01T12:00:00Z"
DRIVER = "linstor.csi.linbit.com"
SLOW = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
SPACE = "images"


def storage_class(name: str, driver: str = DRIVER, **parameters: str) -> Object:
    kind = ("storage.k8s.io/v1", "StorageClass", name)
    return manifest(*kind, provisioner=driver, parameters=parameters)


THRICE = storage_class("thrice", placementCount="3", pool="data")
ONCE = storage_class("once", placementCount="1", pool="data")


def claim(
    name: str, of: str = "once", source: str = "", phase: str = "Pending", uid: str = ""
) -> Object:
    spec = {"storageClassName": of}
    if source:
        spec |= {"dataSource": {"kind": "PersistentVolumeClaim", "name": source}}
    owned = {"cdi.kubevirt.io/OwnedByUID": uid} if uid else {}
    metadata = {"creationTimestamp": "2027-03-01T11:00:00Z", "uid": f"uid-{name}", "labels": owned}
    kind = ("v1", "PersistentVolumeClaim", name, SPACE)
    return manifest(*kind, metadata=metadata, spec=spec, status={"phase": phase})


BASE = claim("base", "thrice", phase="Bound")
MADE = claim("tmp-pvc-u1", source="base", uid="u1")


def own(phase: str = "Pending", **metadata: object) -> Object:
    owner = {"kind": "DataVolume", "name": "root", "uid": "d1", "controller": True}
    metadata = {"uid": "u1", "ownerReferences": [owner]} | metadata
    kind = ("v1", "PersistentVolumeClaim", "root", "shop")
    spec, status = {"storageClassName": "once"}, {"phase": phase}
    return manifest(*kind, metadata=metadata, spec=spec, status=status)


def cdi(override: str = "csi-clone") -> Object:
    spec = {"cloneStrategyOverride": override} if override else {}
    return manifest("cdi.kubevirt.io/v1beta1", "CDI", "cdi", spec=spec)


def profile(strategy: str = "csi-clone") -> Object:
    kind = ("cdi.kubevirt.io/v1beta1", "StorageProfile", "once")
    return manifest(*kind, status={"cloneStrategy": strategy})


def failed(of: Object) -> Object:
    return warning(of, "ProvisioningFailed", SLOW, "2027-03-01T11:58:00Z")


def found(
    *objects: Object, made: Object = MADE, into: Object = ONCE, of: Object = THRICE
) -> Problem:
    cluster = Snapshot([made, into, of, BASE, failed(made), *objects], ["*"], time=NOW)
    problem = provisioners.problem(made, into, None, cluster)
    assert problem is not None
    return problem


def test_cdi_lets_the_storage_clone_into_another_class() -> None:
    problem = found(own(), cdi(), profile())

    assert problem.reason == (
        "CDI cdi (spec.cloneStrategyOverride csi-clone) makes it a clone of claim images/base of "
        f"class thrice in class once, which provisioner {DRIVER} does not make ({SLOW}). It may "
        "not clone between these classes: thrice has placementCount=3; once has placementCount=1"
    )
    assert command_of(problem.remedy) == (
        """kubectl patch storageprofile once --type=merge -p '{"spec":{"cloneStrategy":"copy"}}'"""
    )
    assert "remove spec.cloneStrategyOverride of CDI cdi, which comes before" in problem.remedy
    assert "kubectl delete datavolume root -n shop" in problem.remedy
    assert problem.remedy.endswith("or create the disk in class thrice, that of its source")


@pytest.mark.parametrize("phase", ["Bound", "Lost"])
def test_no_disk_that_may_have_data_is_deleted(phase: str) -> None:
    assert "kubectl delete" not in found(own(phase), cdi()).remedy


def test_the_profile_of_its_class_lets_the_storage_clone() -> None:
    problem = found(own(), cdi(""), profile())

    assert problem.reason.startswith("CDI (StorageProfile once, status.cloneStrategy csi-clone) ")
    assert "cloneStrategyOverride" not in problem.remedy


def test_hyperconverged_may_set_the_override_again() -> None:
    hco = manifest("hco.kubevirt.io/v1beta1", "HyperConverged", "hco", "cnv")
    problem = found(own(), cdi(), hco)

    assert "jsonpatch annotation" in problem.remedy
    assert "kubectl patch cdi" not in problem.remedy


def test_a_claim_that_cdi_does_not_make() -> None:
    problem = found(cdi(), made=claim("disk", source="base"))

    assert problem.reason.startswith("it is to be a clone of claim images/base of class thrice in")
    assert problem.remedy.startswith("make the claim in class thrice, or fill an empty one")
    assert "CDI" not in problem.reason


def test_a_class_of_another_driver_says_so() -> None:
    problem = found(made=claim("disk", source="base"), of=storage_class("thrice", "other.csi"))

    assert "thrice has provisioner=other.csi; once has placementCount=1, pool=data" in (
        problem.reason
    )


@pytest.mark.parametrize(
    ("objects", "into"),
    [
        ((), storage_class("once", placementCount="3", pool="data")),
        ((claim("older", source="base", phase="Bound"),), ONCE),
        ((claim("empty"), failed(claim("empty"))), ONCE),
    ],
    ids=["its classes are alike", "such a clone has its volume", "an empty claim fails as well"],
)
def test_a_clone_whose_classes_are_not_the_cause(objects: tuple[Object, ...], into: Object) -> None:
    problem = found(own(), cdi(), *objects, into=into)

    assert problem.reason == f"provisioner {DRIVER} gets no answer from its storage: {SLOW}"


def test_a_clone_of_its_own_class() -> None:
    base = claim("base", "once", phase="Bound")
    cluster = Snapshot([MADE, ONCE, base, failed(MADE), cdi(), own()], ["*"], time=NOW)
    problem = provisioners.problem(MADE, ONCE, None, cluster)

    assert problem is not None
    assert problem.reason.startswith(f"provisioner {DRIVER} gets no answer")


@pytest.mark.parametrize(
    "error",
    [
        "rpc error: code = ResourceExhausted desc = not enough free space in pool data",
        "rpc error: code = Unavailable desc = connection refused",
        'error getting secret cdi/linstor: secrets "linstor" not found',
    ],
)
def test_an_error_that_names_another_cause(error: str) -> None:
    failing = warning(MADE, "ProvisioningFailed", error, "2027-03-01T11:58:00Z")
    cluster = Snapshot([MADE, ONCE, THRICE, BASE, failing, own(), cdi()], ["*"], time=NOW)
    problem = provisioners.problem(MADE, ONCE, None, cluster)

    assert problem is not None
    assert "clone" not in problem.reason
    assert "datavolume" not in problem.remedy


def test_the_other_claims_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [claim(f"tmp-{number}", source="base", uid=f"u{number}") for number in range(30)]
    cluster = Snapshot([ONCE, THRICE, BASE, *many, *map(failed, many), cdi()], ["*"], time=NOW)
    known, walks = cluster.known, []
    monkeypatch.setattr(cluster, "known", lambda *kind: walks.extend(kind) or known(*kind))
    for each in many:
        provisioners.problem(each, ONCE, None, cluster)

    assert walks.count(PVC) < len(many)
