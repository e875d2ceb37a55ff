"""Components of KubeVirt and CDI that end for a patch of theirs, or for what another one has not
written."""

import json

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain.control import component_states
from virt_admit.model.kubernetes.cluster import Snapshot

NOW, SINCE = "2027-03-01T12:00:00Z", "2027-03-01T11:00:00Z"
NEEDS = (
    "it ends with exit code 2, probably as KubeVirt before 1.4.1 needs status.filesystemOverhead "
    "of CDIConfig config for claims with a file system, and it is empty"
)
CONTROLLER = {"kubevirt.io": "virt-controller"}
PATCHED = "OOMKilled at its limit of 48Mi, which spec.customizeComponents of CDI cdi sets"


def ends(name, namespace, labels, ended, limit="", ready="False"):
    box = {"name": name.rpartition("-")[0]}
    box |= {"resources": {"limits": {"memory": limit}}} if limit else {}
    waiting = {"reason": "CrashLoopBackOff"}
    state = {"name": box["name"], "state": {"waiting": waiting}, "lastState": {"terminated": ended}}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": SINCE}],
        "containerStatuses": [state] if ready == "False" else [],
    }
    spec = {"containers": [box], "nodeName": "a"}
    metadata = {"labels": labels}
    return manifest("v1", "Pod", name, namespace, metadata=metadata, spec=spec, status=status)


def operated(version, kind, name, namespace="", **spec):
    waits = {"type": "Available", "status": "False", "lastTransitionTime": SINCE}
    status = {"conditions": [waits], "observedKubeVirtVersion": "v1.2.0"}
    return manifest(version, kind, name, namespace, spec=spec, status=status)


def patch(limit="48Mi", resource="cdi-deployment"):
    box = {"name": "cdi-deployment", "resources": {"limits": {"memory": limit}}}
    data = {"spec": {"template": {"spec": {"containers": [box]}}}}
    one = {"resourceName": resource, "resourceType": "Deployment", "patch": json.dumps(data)}
    return {"customizeComponents": {"patches": [one]}}


def jsonpatch():
    path = "/spec/template/spec/containers/0/resources/limits/memory"
    one = {"resourceName": "*", "type": "json"}
    one["patch"] = json.dumps([{"op": "replace", "path": path, "value": "48Mi"}])
    return {"customizeComponents": {"patches": [one]}}


def told(cdi=None, config=None, code=2, release="v1.2.0", writer="False"):
    kubevirt = operated("kubevirt.io/v1", "KubeVirt", "kubevirt", "kubevirt")
    kubevirt.data["status"]["observedKubeVirtVersion"] = release
    killed = {"reason": "OOMKilled", "exitCode": 137}
    objects = [
        kubevirt,
        operated("cdi.kubevirt.io/v1beta1", "CDI", "cdi", **(cdi or {})),
        manifest("cdi.kubevirt.io/v1beta1", "CDIConfig", "config", status=config or {}),
        ends(
            "virt-controller-1", "kubevirt", {"kubevirt.io": "virt-controller"}, {"exitCode": code}
        ),
        ends("cdi-deployment-1", "cdi", {"cdi.kubevirt.io": ""}, killed, "48Mi", writer),
        manifest(
            "kubevirt.io/v1",
            "VirtualMachine",
            "new",
            "shop",
            metadata={"creationTimestamp": SINCE},
            spec={"runStrategy": "Always"},
        ),
    ]
    found = component_states.held(Snapshot(objects, ["*"], time=NOW))
    return {each.obj.kind: each for each in found}


@pytest.mark.parametrize("cdi", [patch(), jsonpatch()])
def test_the_status_that_is_not_written_its_writer_and_the_patch_that_ends_it(cdi):
    found = told(cdi)
    assert (
        f"CrashLoopBackOff, {NEEDS}: pod cdi/cdi-deployment-1, which writes it, is not ready for "
        f"60 min (CrashLoopBackOff, container cdi-deployment {PATCHED}). Meanwhile no VM is "
        "started or migrated (VM shop/new has no status yet)."
    ) in found["KubeVirt"].reason
    raised = (
        "raise the limit of container cdi-deployment above 48Mi, or drop it, in "
        "spec.customizeComponents of CDI cdi, as its operator sets a change of the workload back: "
        "kubectl edit cdi cdi"
    )
    assert found["KubeVirt"].remedy == f"{raised}; that pod then writes the status"
    assert found["CDI"].remedy == raised
    assert found["CDI"].reason.endswith(PATCHED)


@pytest.mark.parametrize(
    "changed",
    [
        {"config": {"filesystemOverhead": {"global": "0.06"}}},
        {"code": 1},
        {"release": "v1.4.1"},
        {"release": ""},
    ],
)
def test_virt_controller_that_ends_for_another_reason(changed):
    assert "CDIConfig" not in told(patch(), **changed)["KubeVirt"].reason


def test_a_status_that_a_ready_writer_has_not_written():
    found = told(writer="True")["KubeVirt"]
    assert f"{NEEDS}. Meanwhile" in found.reason


@pytest.mark.parametrize("other", [None, patch(limit="512Mi"), patch(resource="cdi-apiserver")])
def test_a_limit_that_no_patch_sets(other):
    found = told(other)["CDI"]
    assert found.reason.endswith("OOMKilled at its limit of 48Mi")
    assert "customizeComponents" not in found.remedy
