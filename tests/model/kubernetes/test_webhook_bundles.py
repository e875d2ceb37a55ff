"""When the CA bundles of other products end: for doctor, for the metric of a scan, and without a
cost for other files.
"""

import subprocess
import sys
from datetime import timedelta

import pytest

from tests.install.installation import NOW, Cluster, encoded, hook, unsound
from tests.paths import ROOT
from virt_admit.install.inspect import Unreadable
from virt_admit.install.observations import Status
from virt_admit.model.kubernetes import kinds, webhook_bundles
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports import scan_metrics
from virt_admit.reports.findings.report import Report
from virt_admit_certs.certificates import new_signer

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def bundle(days, lifetime=365):
    """A bundle that ends in so many days."""
    return encoded(new_signer(NOW + timedelta(days=days - lifetime), timedelta(days=lifetime)).cert)


def service(ca, name="v1.subresources.kubevirt.io"):
    return {"metadata": {"name": name}, "spec": {"group": name.partition(".")[2], "caBundle": ca}}


def other(ca, name="virtualmachine-validator.kubevirt.io"):
    """The webhook configuration of another product."""
    webhook = {**hook(["virtualmachines"], failurePolicy="Ignore"), "name": name}
    webhook["clientConfig"] = {**webhook["clientConfig"], "caBundle": ca}
    return {"metadata": {"name": "virt-api-validator"}, "webhooks": [webhook]}


def diagnosed(*services, configurations=()):
    cluster = Cluster()
    cluster.objects[SERVICES] = {"items": [*services]}
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    cluster.objects[path]["items"] += configurations
    return [each for each in cluster.diagnose() if each.topic == "webhook bundles"]


def test_doctor_names_what_has_ended_and_what_ends_soon():
    ended, soon = diagnosed(
        service(bundle(29)), service(bundle(365)), configurations=[other(bundle(-1))]
    )
    assert (ended.status, soon.status) == (Status.WRONG, Status.NOTE)
    assert (
        "ValidatingWebhookConfiguration virt-api-validator: the CA in "
        "webhooks[0].clientConfig.caBundle ended"
    ) in ended.text
    assert "APIService v1.subresources.kubevirt.io: the CA in spec.caBundle ends on" in soon.text
    assert "restart the operator" in ended.remedy


@pytest.mark.parametrize(
    "services", [(), (service(bundle(31)),), (service(bundle(-1), "v1.metrics.k8s.io"),)]
)
def test_doctor_is_silent_about_sound_bundles_and_other_products(services):
    assert diagnosed(*services) == []


def test_doctor_does_not_call_what_it_cannot_read_sound():
    cluster = Cluster()
    cluster.objects[SERVICES] = Unreadable("apiservices: 403")
    assert unsound(cluster.diagnose()) == [("webhook bundles", "apiservices: 403")]


def test_the_metric_has_the_first_end_of_each_object():
    first, second = bundle(10), bundle(20)
    configuration = other(second)
    configuration["webhooks"] += other(first)["webhooks"]
    kind = kinds.VALIDATING_CONFIGURATION
    obj = Object({"apiVersion": kind.api_version, "kind": kind.kind, **configuration})
    ends = webhook_bundles.expiry(
        Snapshot([obj, Object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})])
    )
    assert ends == {(kind.kind, "virt-api-validator"): (NOW + timedelta(days=10)).timestamp()}

    registry = scan_metrics.gauges(Report(()), {}, 1.0, None, ends)
    labels = {"kind": kind.kind, "name": "virt-api-validator"}
    assert (
        registry.get_sample_value("virt_admit_webhook_bundle_expiry_timestamp_seconds", labels)
        in ends.values()
    )


def test_checking_other_files_does_not_load_cryptography():
    """It takes 14 MiB and half of the time of a check."""
    code = (
        "import sys; from virt_admit.cli.main import virt_admit;virt_admit(['check', '-q', "
        "'examples'], standalone_mode=False); print('cryptography' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines()[-1] == "False"
