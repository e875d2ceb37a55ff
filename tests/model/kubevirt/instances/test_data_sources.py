"""The architecture that a VM takes from the DataSource of a data volume template."""

import pytest

from tests.builders import kubevirt, manifest
from tests.for_each import for_each
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances.expand import architecture, expand

ALL = "datasources.cdi.kubevirt.io"
LABEL = "template.kubevirt.io/architecture"


def source(name, labelled=None, namespace="shop", refers_to=None):
    labels = {LABEL: labelled} if labelled else {}
    spec = {"source": {"dataSource": refers_to} if refers_to else {"pvc": {}}}
    api = "cdi.kubevirt.io/v1beta1"
    return manifest(api, "DataSource", name, namespace, metadata={"labels": labels}, spec=spec)


def vm(*references, own=None, kind="VirtualMachine"):
    templates = [
        {"metadata": {"name": str(i)}, "spec": {"sourceRef": each}}
        for i, each in enumerate(references)
    ]
    spec = {"dataVolumeTemplates": templates, "template": {"spec": {"architecture": own}}}
    if kind == "VirtualMachinePool":
        spec = {"virtualMachineTemplate": {"spec": spec}}
    api = "pool.kubevirt.io/v1beta1" if kind == "VirtualMachinePool" else "kubevirt.io/v1"
    return Object(
        {
            "apiVersion": api,
            "kind": kind,
            "metadata": {"name": "db", "namespace": "shop"},
            "spec": spec,
        }
    )


def found(obj, *objects, complete=(ALL,)):
    cluster = Snapshot([kubevirt(status={"defaultArchitecture": "amd64"}), *objects], complete)
    return architecture(expand(obj, cluster), cluster)


REFERENCE = {"kind": "DataSource", "name": "fedora"}
ELSEWHERE = REFERENCE | {"namespace": "images"}


@for_each(
    "obj, objects, answer",
    [
        (vm(REFERENCE), [source("fedora", "arm64")], "arm64"),
        (vm(REFERENCE, kind="VirtualMachinePool"), [source("fedora", "arm64")], "arm64"),
        (vm(REFERENCE | {"kind": "datasource"}), [source("fedora", "arm64")], "arm64"),
        (vm(REFERENCE | {"kind": "Snapshot"}), [source("fedora", "arm64")], "amd64"),
        (vm(ELSEWHERE), [source("fedora", "s390x", "images")], "s390x"),
        (vm(ELSEWHERE), [source("fedora", "s390x")], "amd64"),
        (vm(REFERENCE), [source("fedora")], "amd64"),
        (vm(REFERENCE), [source("fedora", "riscv64")], "amd64"),
        (vm(REFERENCE, own="amd64"), [source("fedora", "arm64")], "amd64"),
        (vm({"name": "x", "kind": "DataSource"}, REFERENCE), [source("fedora", "arm64")], "arm64"),
        (
            vm(REFERENCE),
            [
                source("fedora", "amd64", refers_to={"name": "f42", "namespace": "images"}),
                source("f42", "arm64", "images"),
            ],
            "arm64",
        ),
        (vm(None, {}, {"kind": 7}, "x"), [], "amd64"),
    ],
)
def test_the_label_of_the_first_data_source_counts(obj, objects, answer):
    assert found(obj, *objects) == answer


def test_a_data_source_that_cannot_be_read_leaves_the_architecture_open():
    assert found(vm(REFERENCE), complete=()) is None
    assert found(vm(ELSEWHERE, own="arm64"), complete=()) == "arm64"


@pytest.mark.parametrize(
    ("release", "answer"), [("v1.6.3", "amd64"), ("v1.6.4", "arm64"), ("v1.7.0", "arm64")]
)
def test_older_releases_ignore_the_label(release, answer):
    cluster = Snapshot(
        [kubevirt(status={"observedKubeVirtVersion": release}), source("fedora", "arm64")]
    )
    assert architecture(expand(vm(REFERENCE), cluster), cluster) == answer
