"""Many Plans of Forklift that failed: the work is that of one walk over the VMs."""

import pytest

from tests.builders import complete, manifest, vm
from virt_admit.forecasts.drain.control import failed_plans, mac_addresses

REFUSED = (
    'admission webhook "mutatevirtualmachines.kubemacpool.io" denied the request: '
    "Failed to allocate mac to the vm object: failed to allocate requested mac address"
)
HOST = {"name": "host", "namespace": "mtv"}


def source(number):
    interface = {"name": "n", "macAddress": f"02:00:00:00:00:{number:02x}"}
    devices = {"devices": {"interfaces": [interface]}}
    name = f"db{number}"
    return vm({"spec": {"domain": devices}}, name=name, metadata={"uid": f"u{number}"})


def plan(number):
    error = {"phase": "CreateVM", "reasons": [REFUSED]}
    entry = {"id": f"u{number}", "completed": "2027-01-01T11:00:00Z", "error": error}
    return manifest(
        "forklift.konveyor.io/v1beta1",
        "Plan",
        f"move{number}",
        "mtv",
        spec={"targetNamespace": "there", "provider": {"source": HOST, "destination": HOST}},
        status={
            "conditions": [{"type": "Failed", "status": "True"}],
            "migration": {"vms": [entry | {"name": f"db{number}"}]},
        },
    )


def test_an_entry_without_an_id_is_of_no_known_vm():
    """A manifest has neither the uid of a VM nor the status of a Plan as the API server writes
    it."""
    plans = [plan(number) for number in range(2)]
    for each in plans:
        del each.data["status"]["migration"]["vms"][0]["id"]
    later = plans[1].data["status"]["migration"]["vms"][0]
    later |= {"completed": "2027-01-01T12:00:00Z"}
    own = source(7)
    del own.data["metadata"]["uid"]
    cluster = complete(*plans, own)
    reasons = [failed_plans.of(each, cluster).reason for each in plans]
    assert all(each.startswith(f"the migration of VM db{n} f") for n, each in enumerate(reasons))
    assert not any(own.name in each for each in reasons)
    assert failed_plans.why_off(own, cluster) == ""


def test_the_holders_of_addresses_are_found_once(monkeypatch):
    plans, walked, macs = [plan(number) for number in range(20)], [], mac_addresses.macs
    monkeypatch.setattr(mac_addresses, "macs", lambda spec: walked.append(spec) or macs(spec))
    cluster = complete(*plans, *map(source, range(40)))
    found = [failed_plans.of(each, cluster) for each in plans]
    assert all(each and "which that VM keeps" in each.reason for each in found)
    assert len(walked) == 40 + 20


def provider(name, **spec):
    own = {"type": "openshift"} | spec
    return manifest("forklift.konveyor.io/v1beta1", "Provider", name, "mtv", spec=own)


@pytest.mark.parametrize(
    ("one", "other", "is_local"),
    [
        ({}, {"url": ""}, True),  # both of the cluster of Forklift
        ({"url": "https://api.a:6443"}, {"url": "https://api.a:6443/"}, True),
        ({}, {"url": "https://api.a:6443"}, False),
        ({"url": "https://api.a:6443"}, {"url": "https://api.b:6443"}, False),
        ({"type": "ovirt"}, {"type": "ovirt"}, False),
        ({}, None, False),
    ],
)
def test_two_providers_may_be_of_one_cluster(one, other, is_local):
    moved, new = plan(1), source(1)
    moved.data["spec"]["provider"] = {"source": HOST, "destination": HOST | {"name": "own"}}
    new.data["metadata"] |= {"namespace": "there", "uid": "u9"}
    others = [provider("own", **other)] if other is not None else []
    cluster = complete(moved, source(1), new, provider("host", **one), *others)
    found = failed_plans.of(moved, cluster)
    told = "VM there/db1 exists already" if is_local else "VM there/db1 of Provider mtv/own may"
    assert told in found.reason
