"""Pods of CDI that the API server refuses: what refuses them is computed, or the log is named."""

import pytest

from tests.builders import manifest
from tests.healthy.parts import ago
from virt_admit.forecasts.drain.starts.storage import absent_workers
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.messages import command_of

IMPORT = "cdi.kubevirt.io/storage.import.importPodName"
ZERO = {each: {"cpu": "0", "memory": "0"} for each in ("requests", "limits")}
USUAL = {"requests": {"cpu": "100m", "memory": "60M"}, "limits": {"cpu": "750m", "memory": "600M"}}
RATIO = {"type": "Container", "maxLimitRequestRatio": {"cpu": "10"}}
TIGHT = {"type": "Container", "max": {"memory": "100Mi"}}
HCO = manifest("hco.kubevirt.io/v1beta1", "HyperConverged", "hco", "cnv")


def disk(phase="ImportScheduled", minutes=40, bound="True", reason="Bound"):
    bound = {"status": bound, "reason": reason, "lastTransitionTime": ago(minutes=minutes)}
    bound["type"] = "Bound"
    return manifest(
        "cdi.kubevirt.io/v1beta1",
        "DataVolume",
        "root",
        "shop",
        metadata={"creationTimestamp": ago(minutes=500)},
        status={"phase": phase, "conditions": [bound]},
    )


SCRATCH = {"cdi.kubevirt.io/storage.import.requiresScratch": "true"}


def claim(name="root", key=IMPORT, pod="importer-root", notes=None):
    notes = {key: pod, **(notes or {})}
    return manifest("v1", "PersistentVolumeClaim", name, "shop", metadata={"annotations": notes})


def config(given):
    return manifest(
        "cdi.kubevirt.io/v1beta1",
        "CDIConfig",
        "config",
        status={"defaultPodResourceRequirements": given},
    )


def limit_range(*limits):
    return manifest("v1", "LimitRange", "small", "shop", spec={"limits": list(limits)})


def quota(**used):
    hard = {"limits.memory": "1Gi"}
    status = {"hard": hard, "used": used or {"limits.memory": "0"}}
    return manifest("v1", "ResourceQuota", "q", "shop", spec={"hard": hard}, status=status)


def controller(ready="True"):
    return manifest(
        "v1",
        "Pod",
        "cdi-deployment-1",
        "cdi",
        metadata={"labels": {"cdi.kubevirt.io": "cdi-deployment"}},
        status={"conditions": [{"type": "Ready", "status": ready}]},
    )


def found(*objects, of=None, claims=("root", "prime-u1"), complete=("*",)):
    of = of or disk()
    cluster = Snapshot([of, *objects], complete, time=ago())
    return absent_workers.problem(of, claims, "its disk root is not filled", cluster)


def test_a_ratio_refuses_requests_of_zero():
    problem = found(claim(), config(ZERO), limit_range(RATIO), controller(), HCO)
    assert problem.reason == (
        "its disk root is not filled: CDI has not created pod importer-root for 40 min, as "
        "LimitRange shop/small refuses it: cpu: a request and a limit are necessary, for a ratio "
        "of at most 10; CDIConfig config gives it requests cpu 0, memory 0 and limits cpu 0, "
        "memory 0, and 0 counts as none"
    )
    assert "spec.resourceRequirements.storageWorkloads of HyperConverged" in problem.remedy
    assert command_of(problem.remedy).startswith("kubectl patch hyperconverged hco -n cnv")


CDI = manifest("cdi.kubevirt.io/v1beta1", "CDI", "cdi")


@pytest.mark.parametrize(
    ("ratios", "requests"),
    [
        ({"cpu": "4"}, "requests cpu 190m, memory 60M and limits cpu 750m, memory 600M"),
        ({"cpu": "1", "memory": "3"}, "requests cpu 750m, memory 200M and limits cpu 750m, mem"),
    ],
)
def test_requests_as_large_as_a_ratio_demands(ratios, requests):
    """CDI writes a reason of its own into the condition of a claim whose pod is refused."""
    of = disk(bound="False", reason="ErrStartingPod")
    strict = limit_range({"type": "Container", "maxLimitRequestRatio": ratios})
    problem = found(claim(), config(USUAL), strict, controller(), CDI, of=of)

    assert "LimitRange shop/small refuses it: cpu: the limit is more than" in problem.reason
    assert "CDIConfig config gives it requests cpu 100m, memory 60M and" in problem.reason
    assert problem.remedy.startswith(
        f"set spec.config.podResourceRequirements of CDI to {requests}"
    )
    assert problem.remedy.endswith("; or change LimitRange small")


def test_a_setting_that_is_refused_too_is_not_advised():
    problem = found(claim(), config(USUAL), limit_range(TIGHT), HCO)
    assert "memory: limit 572.3Mi, the maximum is 100Mi" in problem.reason
    assert problem.remedy == "change LimitRange small: kubectl edit limitrange small -n shop"


def test_a_quota_has_no_room():
    problem = found(claim(), config(USUAL), quota(**{"limits.memory": "900Mi"}), HCO)
    assert "ResourceQuota shop/q refuses it: limits.memory: " in problem.reason
    assert problem.remedy == "raise ResourceQuota q: kubectl edit resourcequota q -n shop"


@pytest.mark.parametrize(
    "objects", [(config(USUAL), limit_range(RATIO), quota()), (limit_range(RATIO),), ()]
)
def test_only_the_log_says_why(objects):
    problem = found(claim(), controller(), *objects)
    assert problem.reason.endswith("and only the log of its controller says why")
    assert command_of(problem.remedy) == "kubectl logs cdi-deployment-1 -n cdi"


def test_the_controller_does_not_work():
    problem = found(claim(), controller("False"))
    assert "CDI's controller, pod cdi/cdi-deployment-1, is not ready" in problem.reason


def test_the_temporary_claim_and_an_upload():
    temporary = claim("prime-u1", pod="importer-prime-u1")
    assert "pod importer-prime-u1 for" in found(claim(), temporary).reason
    upload = claim(key="cdi.kubevirt.io/storage.uploadPodName", pod="cdi-upload-root")
    assert "pod cdi-upload-root for" in found(upload, of=disk("UploadScheduled")).reason


@pytest.mark.parametrize(
    ("of", "objects"),
    [
        (disk(), [claim(), manifest("v1", "Pod", "importer-root", "shop")]),
        (disk(minutes=2), [claim()]),
        (disk("ImportInProgress"), [claim()]),
        (disk("WaitForFirstConsumer"), [claim()]),
        (disk(), []),
        (disk(), [claim(notes=SCRATCH)]),
        (disk(bound="False", reason="Pending"), [claim()]),
    ],
    ids=[
        "it exists",
        "it has just begun",
        "it runs",
        "it waits",
        "no pod is named",
        "it is made again",
        "its claim has no volume",
    ],
)
def test_nothing_is_wrong(of, objects):
    usual = (config(USUAL), limit_range(RATIO), controller())
    assert found(*objects, *usual, of=of) is None


def test_a_pod_that_does_not_start():
    created = {"creationTimestamp": ago(minutes=30)}
    pod = manifest(
        "v1", "Pod", "importer-root", "shop", metadata=created, status={"phase": "Pending"}
    )
    assert "pod importer-root has not started for 30 min" in found(claim(), pod).reason


def test_pods_that_cannot_be_read():
    with pytest.raises(Unseen):
        found(claim(), complete=())
