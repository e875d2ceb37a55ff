"""Many Plans of Forklift that failed: the work is that of one walk over the VMs."""

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
