"""``check`` of a folder without a cluster:
budgets and quotas against the workloads and VMs of the same folder.
"""

import json

from click.testing import CliRunner

from virt_admit.cli import main

BUDGET = """\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: mail, namespace: shop}
spec: {minAvailable: 2, selector: {matchLabels: {app: mail}}}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: mail, namespace: shop}
spec: {replicas: 2, selector: {matchLabels: {app: mail}}, template: {metadata: {labels: {app: mail}}, spec: {}}}
"""  # noqa: E501
AUTOSCALER = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: mail, namespace: shop}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: mail}, minReplicas: 3, maxReplicas: 9}
"""  # noqa: E501
QUOTA = """\
apiVersion: v1
kind: ResourceQuota
metadata: {name: team, namespace: shop}
spec: {hard: {requests.memory: %s}}
"""
VM = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm%d, namespace: shop}
spec:
  runStrategy: Always
  template: {spec: {evictionStrategy: LiveMigrate, domain: {memory: {guest: 4Gi}, devices: {}}}}
"""


def found(tmp_path, rule, *texts):
    for number, text in enumerate(texts):
        (tmp_path / f"{number:02}.yaml").write_text(text)
    result = CliRunner().invoke(
        main.virt_admit, ["check", str(tmp_path), "-o", "json"], standalone_mode=False
    )
    assert result.exception is None, result.exception
    listed = json.loads(result.stdout)["results"]
    return [each["message"] for each in listed if each["rule"] == rule and each["action"]]


def test_a_budget_for_all_replicas_of_a_deployment(tmp_path):
    (message,) = found(tmp_path, "pod-budget-blocks-drain", BUDGET, DEPLOYMENT)
    assert (
        "minAvailable is 2 for 2 pods, so no pod of Deployment mail can ever be evicted" in message
    )


def test_an_autoscaler_in_the_folder_sets_the_replicas(tmp_path):
    assert found(tmp_path, "pod-budget-blocks-drain", BUDGET, DEPLOYMENT) != []
    assert found(tmp_path, "pod-budget-blocks-drain", BUDGET, DEPLOYMENT, AUTOSCALER) == []


def test_ten_vms_that_leave_no_room_for_a_second_pod(tmp_path):
    vms = [VM % number for number in range(10)]
    assert found(tmp_path, "quota-blocks-migration", QUOTA % "60Gi", *vms) == []
    (message,) = found(tmp_path, "quota-blocks-migration", QUOTA % "44Gi", *vms)
    assert "a second pod of VM vm0: its migration never starts" in message
    (message,) = found(tmp_path, "quota-blocks-migration", QUOTA % "40Gi", *vms)
    assert "missing for 10 VMs of the namespace together, so not all of them start" in message
