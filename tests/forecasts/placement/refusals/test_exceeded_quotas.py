"""What a quota lacks for a disk that CDI fills: it holds up to three claims of it at once."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.refusals import exceeded_quotas
from virt_admit.forecasts.placement.refusals.exceeded_quotas import Filling
from virt_admit.model.evidence.writes import quota_writers
from virt_admit.model.kubernetes.cluster import Snapshot

STORAGE = "requested: requests.storage=20Gi, used: requests.storage=90Gi, limited: {0}=100Gi"
BEGIN = 'persistentvolumeclaims "{0}" is forbidden: exceeded quota: q, '


def refusal(claim="root"):
    return BEGIN.format(claim) + STORAGE.format("requests.storage")


def disk(source, populators="true", **spec):
    annotations = {"cdi.kubevirt.io/storage.usePopulator": populators} if populators else {}
    api = "cdi.kubevirt.io/v1beta1"
    spec = {"source": source, **spec}
    return manifest(
        api, "DataVolume", "root", "shop", metadata={"annotations": annotations}, spec=spec
    )


@pytest.mark.parametrize(
    ("given", "held"),
    [
        (disk({"registry": {}}), Filling(True, True)),
        (disk({"registry": {"pullMethod": "node"}}), Filling(True, False)),
        (disk({"upload": {}}), Filling(True, True)),
        (disk({"blank": {}}), Filling(True, False)),
        (disk({"http": {}}), Filling(True, None)),
        (disk({"http": {}}, contentType="archive"), Filling(True, True)),
        (disk({"http": {}}, "false"), Filling(False, None)),
        (disk({"blank": {}}, ""), Filling(None, False)),
        (disk({"pvc": {"name": "golden"}}), Filling(True, False)),
        (disk({"pvc": {"name": "golden", "namespace": "images"}}), Filling(False, False)),
        (disk({}, sourceRef={"name": "fedora"}), Filling(None, False)),
    ],
)
def test_the_claims_that_cdi_has_meanwhile(given, held):
    assert exceeded_quotas.filling(given) == held


@pytest.mark.parametrize(
    ("claim", "held", "remedy"),
    [
        ("root", Filling(), "requests.storage 110Gi, or free 10Gi of requests.storage there"),
        ("root", Filling(True), "requests.storage 130Gi (110Gi once it is filled), or free 30Gi"),
        ("root", Filling(True, True), "requests.storage 151.3Gi (110Gi once it is filled), or"),
        ("root", Filling(None), "requests.storage 110Gi (up to 20Gi more while CDI fills it)"),
        ("prime-u1", Filling(True, True), "requests.storage 131.3Gi"),
        ("prime-u1-scratch", Filling(True, True), "requests.storage 110Gi, or free 10Gi"),
    ],
)
def test_a_limit_that_suffices_while_it_is_filled(claim, held, remedy):
    found = exceeded_quotas.of(refusal(claim), "shop", held)
    assert found is not None
    assert found.claim == claim
    assert f"raise ResourceQuota q to at least {remedy}" in found.remedy


def test_it_goes_on_once_all_fit():
    found = exceeded_quotas.of(refusal(), "shop", Filling(True, True))
    assert found is not None
    assert "it needs a temporary claim (prime-UID) and one to unpack the image" in found.words
    assert found.words.endswith("It goes on by itself once all fit")
    unsure = exceeded_quotas.of(refusal(), "shop", Filling(None))
    assert unsure is not None
    assert unsure.words.endswith("It does not go on before that fits")


@pytest.mark.parametrize(("used", "lacks"), [("3", False), ("4", True)])
def test_the_limit_of_claims_counts_them_as_well(used, lacks):
    spec = {"hard": {"requests.storage": "100Gi", "persistentvolumeclaims": "6"}}
    status = {**spec, "used": {"requests.storage": "90Gi", "persistentvolumeclaims": used}}
    quota = manifest("v1", "ResourceQuota", "q", "shop", spec=spec, status=status)
    found = exceeded_quotas.of(refusal(), "shop", Filling(True, True), Snapshot([quota]))
    assert found is not None
    assert ("persistentvolumeclaims 7 (5 once it is filled)" in found.remedy) == lacks


@pytest.mark.parametrize(
    ("used", "way"),
    [
        ("0", "make the VM smaller by at least 1Gi of limits.memory"),
        (
            "2Gi",
            "make the VM smaller by at least 3Gi of limits.memory (or by 1Gi of limits.memory and "
            "free 2Gi there)",
        ),
        ("4Gi", "make the VM smaller by at least 1Gi of limits.memory and free 4Gi there"),
    ],
)
def test_what_is_larger_than_a_quota_is_not_helped_by_what_others_use_alone(used, way):
    figures = (
        f"requested: limits.memory=5Gi, used: limits.memory={used}, limited: limits.memory=4Gi"
    )
    found = exceeded_quotas.of(f'pods "p" is forbidden: exceeded quota: q, {figures}', "shop")

    assert "That alone is more than the quota" in found.words
    assert f", or {way}: kubectl" in found.remedy


@pytest.mark.parametrize("of_rancher", [True, False])
def test_a_quota_of_rancher_is_raised_there(of_rancher):
    labels = {"resourcequota.management.cattle.io/default-resource-quota": str(of_rancher).lower()}
    quota = manifest("v1", "ResourceQuota", "q", "shop", spec={"hard": {"limits.memory": "4Gi"}})
    quota.data["metadata"]["labels"] = labels
    figures = "requested: limits.memory=1Gi, used: limits.memory=4Gi, limited: limits.memory=4Gi"
    said = f'pods "p" is forbidden: exceeded quota: q, {figures}'
    found = exceeded_quotas.of(said, "shop", cluster=Snapshot([quota]))

    assert ("in its Rancher project to at least limits.memory 5Gi" in found.remedy) is of_rancher
    assert ("kubectl edit resourcequota q -n shop" in found.remedy) is not of_rancher
    assert "free 1Gi of limits.memory there" in found.remedy


@pytest.mark.parametrize("key", ["migrating-web", "migratingUID-1b2c", ""])
def test_harvester_refuses_other_limits_while_a_vm_migrates(key):
    quota = manifest("v1", "ResourceQuota", "q", "shop")
    labels = {"resourcequota.management.cattle.io/default-resource-quota": "true"}
    quota.data["metadata"] |= {"labels": labels, "annotations": {f"harvesterhci.io/{key}": "{}"}}

    words, _ = quota_writers.raising("q", "shop", quota)

    assert ("Harvester refuses that until all migrations" in words) is bool(key)


@pytest.mark.parametrize(
    ("metadata", "way"),
    [
        (
            {
                "ownerReferences": [
                    {
                        "apiVersion": "aaq.kubevirt.io/v1alpha1",
                        "kind": "ApplicationAwareResourceQuota",
                        "name": "team",
                        "controller": True,
                    }
                ]
            },
            "raise ApplicationAwareResourceQuota team to at least limits.memory 5Gi, which writes "
            "ResourceQuota q",
        ),
        (
            {"labels": {"argocd.argoproj.io/instance": "quotas"}},
            "raise ResourceQuota q to at least limits.memory 5Gi in Argo CD application quotas",
        ),
    ],
)
def test_a_quota_is_raised_where_it_is_written(metadata, way):
    hard = {"hard": {"limits.memory": "4Gi"}}
    quota = manifest("v1", "ResourceQuota", "q", "shop", metadata=metadata, spec=hard)
    figures = "requested: limits.memory=1Gi, used: limits.memory=4Gi, limited: limits.memory=4Gi"
    said = f'pods "p" is forbidden: exceeded quota: q, {figures}'
    found = exceeded_quotas.of(said, "shop", cluster=Snapshot([quota]))
    assert found.remedy.startswith(way)
