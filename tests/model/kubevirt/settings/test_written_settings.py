"""The object and the field by which a setting is changed that HyperConverged writes."""

import pytest

from tests.builders import manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.settings import written_settings
from virt_admit.model.kubevirt.settings.written_settings import WrittenSetting

KUBEVIRT = manifest("kubevirt.io/v1", "KubeVirt", "kubevirt", "kubevirt", spec={})


def hco(version):
    return manifest(
        f"hco.kubevirt.io/{version}",
        "HyperConverged",
        "kubevirt-hyperconverged",
        "kubevirt",
        spec={},
    )


def held(*objects, setting=WrittenSetting.INFRA, complete=("*",)):
    return written_settings.holder(
        setting, KUBEVIRT, Snapshot([KUBEVIRT, *objects], list(complete))
    )


@pytest.mark.parametrize(
    ("objects", "words", "patch"),
    [
        ((), "spec.infra.nodePlacement of KubeVirt", "kubevirt kubevirt -n kubevirt"),
        (
            (hco("v1beta1"),),
            "spec.infra.nodePlacement of HyperConverged",
            "hyperconverged kubevirt-hyperconverged",
        ),
        (
            (hco("v1"),),
            "spec.deployment.nodePlacements.infra of HyperConverged",
            (
                "--type=merge -p "
                """'{"spec":{"deployment":{"nodePlacements":{"infra":{"nodeSelector":{"a":"b"}}}}}}'"""
            ),
        ),
    ],
)
def test_the_field_has_the_form_of_the_version(objects, words, patch):
    found = held(*objects)
    assert found.words == words
    assert patch in found.patch({"a": "b"}, "nodeSelector")


def test_hyperconverged_that_cannot_be_read_may_write_it():
    assert held(complete=("kubevirts.kubevirt.io",)) is None
