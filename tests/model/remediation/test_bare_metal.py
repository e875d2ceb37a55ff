"""Hosts of bare metal that Machines wait for."""

import pytest

from tests.builders import manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.remediation import bare_metal


@pytest.mark.parametrize(
    ("consumer", "short"), [("m1-infra", None), ("m1", "the only BareMetalHost is in use")]
)
def test_cluster_api_gives_a_host_to_the_metal3machine(consumer, short):
    ref = {"kind": "Metal3Machine", "name": "m1-infra"}
    machine = manifest(
        "cluster.x-k8s.io/v1beta1", "Machine", "m1", "capi", spec={"infrastructureRef": ref}
    )
    spec = {"consumerRef": {"kind": "Metal3Machine", "name": consumer}}
    host = manifest("metal3.io/v1alpha1", "BareMetalHost", "h1", "capi", spec=spec)

    found = bare_metal.shortage(machine, Snapshot([machine, host], complete=["*"]))
    assert (found and found.words) == short
