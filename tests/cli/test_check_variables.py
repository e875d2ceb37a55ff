"""Variables in files, such as ``${TIMEOUT}``: nothing is known of their values."""

import pytest

from tests.cli.test_check import check  # noqa: F401 - a fixture

MHC = """\
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineHealthCheck
metadata: {{name: workers, namespace: default}}
spec:
  clusterName: prod
  maxUnhealthy: 40%
  selector: {{matchLabels: {{cluster.x-k8s.io/deployment-name: prod-md-0}}}}
  unhealthyConditions:
  - {{type: Ready, status: "False", timeout: {timeout}}}
  - {{type: Ready, status: "Unknown", timeout: 5m}}
"""
RULE = "condition-timeout-invalid"


@pytest.mark.parametrize(
    "variable", ["${TIMEOUT}", "${TIMEOUT:=5m}", "${{TIMEOUT}}", "${N}m", "${TIMEOUT/x/y}"]
)
def test_the_value_of_a_variable_is_missing_data(check, variable):  # noqa: F811
    code, out, err = check(mhc=MHC.format(timeout=f'"{variable}"'))
    assert code == 0
    assert "deny" not in out
    assert "the value of ${" in out
    assert RULE in out.rpartition("unseen:")[2]
    assert "without data" in err
    assert check("--strict", ".")[0] == 1


NHC = """\
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: workers}
spec:
  minHealthy: 51%
  selector: {matchExpressions: [{key: "${ROLE}", operator: Exists}]}
  remediationTemplate:
    apiVersion: self-node-remediation.medik8s.io/v1alpha1
    kind: SelfNodeRemediationTemplate
    name: template
    namespace: workload-availability
"""


def of_cluster(label, name="prod"):
    """A check that selects by a label and names a cluster."""
    text = MHC.format(timeout="5m")
    text = text.replace("cluster.x-k8s.io/deployment-name: prod-md-0", label)
    return text.replace("clusterName: prod", f'clusterName: "{name}"')


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("mhc-selector-invalid", of_cluster('set: "${CLUSTER}-md-0"')),
        ("mhc-selector-invalid", of_cluster(f'set: "{"p" * 50}${{CLUSTER}}"')),
        ("capi-mhc-cluster-name", of_cluster('cluster.x-k8s.io/cluster-name: "${C}"')),
        ("capi-mhc-cluster-name", of_cluster("cluster.x-k8s.io/cluster-name: prod", "${C}")),
        ("nhc-selector-invalid", NHC),
    ],
)
def test_a_variable_within_what_a_finding_is_about(check, rule, text):  # noqa: F811
    code, out, _ = check(mhc=text)
    assert (code, "deny" in out) == (0, False)
    assert rule in out.rpartition("unseen:")[2]


@pytest.mark.parametrize("text", ["$TIMEOUT", "${}", "$(TIMEOUT)", "${1}", "<timeout>"])
def test_another_text_is_a_wrong_value(check, text):  # noqa: F811
    code, out, _ = check(mhc=MHC.format(timeout=f'"{text}"'))
    assert code == 1
    assert RULE in out


def test_what_holds_for_every_value_is_said(check):  # noqa: F811
    vm = (
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: db}\n"
        "spec: {running: '${RUN}', runStrategy: '${STRATEGY}', template: {spec: {domain: {}}}}\n"
    )
    code, out, _ = check(vm=vm)
    assert code == 1
    assert "vm-running-and-run-strategy" in out
    assert "'${STRATEGY}' is not a known value" not in out


def test_a_fix_leaves_a_variable_alone(check, tmp_path):  # noqa: F811
    kubevirt = (
        "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: kubevirt}\n"
        "spec: {workloadUpdateStrategy: {workloadUpdateMethods: ['${METHOD}', Evikt]}}\n"
    )
    check("--fix", ".", kubevirt=kubevirt)
    assert (tmp_path / "kubevirt.yaml").read_text() == kubevirt.replace("Evikt", "Evict")


def test_variables_of_an_openshift_template(check):  # noqa: F811
    body = "\n".join("  " + line for line in MHC.format(timeout="'${T}'").splitlines())
    template = (
        "apiVersion: template.openshift.io/v1\nkind: Template\nmetadata: {name: t}\nobjects:\n-"
        + body[1:]
        + "\nparameters: [{name: T}]\n"
    )
    code, out, _ = check(template=template)
    assert (code, "the value of ${T}" in out) == (0, True)


VM = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: "${NAME}", namespace: shop}
spec:
  runStrategy: Always
  template:
    spec:
      evictionStrategy: LiveMigrate
      domain: {devices: {disks: [{name: root, disk: {bus: virtio}}]}, memory: {guest: 1Gi}}
      volumes: [{name: root, persistentVolumeClaim: {claimName: "${NAME}-root"}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: "${NAME}-root", namespace: shop}
spec: {accessModes: [MODE], resources: {requests: {storage: 1Gi}}}
"""


def test_a_claim_that_was_found_is_judged_whatever_its_name_becomes(check):  # noqa: F811
    rule = "[vm-live-migrate-not-migratable]"
    assert rule in check(vm=VM.replace("MODE", "ReadWriteOnce"))[1]
    assert rule not in check(vm=VM.replace("MODE", "ReadWriteMany"))[1]
