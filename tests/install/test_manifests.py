"""What the cluster is given: registration and pods, without a cluster."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.for_each import for_each
from tests.paths import ROOT
from virt_admit.cli import main
from virt_admit.cli.commands import scan, serve
from virt_admit.install import manifests
from virt_admit.install.manifests import ENTRIES, KUBEVIRT_NAMESPACES, MUTATING, NAME
from virt_admit.model.kubernetes import kinds
from virt_admit.policy.files import PolicyConfigMap
from virt_admit.rules import load_rules
from virt_admit.serving.gunicorn_worker import DRAIN_SECONDS
from virt_admit.serving.settings import Settings
from virt_admit.settings import CERTS_SECRET, NAMESPACE, SERVICE, SERVICE_NAMES

FOLDER = ROOT / "manifests"
FILES = sorted(FOLDER.rglob("*.yaml"))
RULES = load_rules().at_admission
MUTATE, VALIDATE = manifests.webhooks(RULES)
ENTRY_KEYS = {
    *(
        "name",
        "admissionReviewVersions",
        "clientConfig",
        "failurePolicy",
        "matchPolicy",
        "sideEffects",
    ),
    *("timeoutSeconds", "namespaceSelector", "objectSelector", "matchConditions", "rules"),
}
"""Every field of an entry. The API server writes defaults for others,
and GitOps tools see a difference.
"""


def objects(path: str) -> list[dict[str, Any]]:
    return [obj for obj in yaml.safe_load_all((FOLDER / path).read_text()) if obj]


def one(path: str, kind: str) -> dict[str, Any]:
    (found,) = [obj for obj in objects(path) if obj["kind"] == kind]
    return found


def registered(configuration: dict[str, Any]) -> Counter[tuple[str, str]]:
    return Counter(
        (group, resource)
        for entry in configuration["webhooks"]
        for rule in entry["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    )


class TestRegistration:
    @for_each("kind", RULES.kinds)
    def test_a_judged_kind_is_in_exactly_one_entry_with_what_its_rules_ask_for(self, kind):
        found = [
            rule
            for entry in VALIDATE["webhooks"]
            for rule in entry["rules"]
            if rule["apiGroups"] == [kind.group] and kind.plural in rule["resources"]
        ]
        assert len(found) == 1
        asked = {str(operation) for rule in RULES.by_kind[kind] for operation in rule.operations}
        assert set(found[0]["operations"]) == (asked - {"UPDATE"} if kind == kinds.VMI else asked)
        assert {resource.partition("/")[2] for resource in found[0]["resources"]} - {""} == {
            name for rule in RULES.by_kind[kind] for name in rule.subresources
        }
        assert found[0]["scope"] == ("Namespaced" if kind.namespaced else "Cluster")

    def test_no_other_kind_is_registered(self):
        judged = {(kind.group, kind.plural) for kind in RULES.kinds}
        assert {
            (group, resource.partition("/")[0]) for group, resource in registered(VALIDATE)
        } == judged

    def test_the_kinds_with_fixes_are_mutated_when_they_are_created(self):
        fixed = {
            (kind.group, kind.plural)
            for rule in RULES
            if rule.fix_by_default
            for kind in rule.kinds
        }
        assert (
            set(registered(MUTATE))
            == fixed
            == {(kind.group, kind.plural) for kind in MUTATING.kinds}
        )
        assert all(rule["operations"] == ["CREATE"] for rule in MUTATE["webhooks"][0]["rules"])

    @pytest.mark.parametrize("configuration", [MUTATE, VALIDATE], ids=lambda each: each["kind"])
    def test_what_holds_for_every_entry(self, configuration):
        verb = "mutate" if configuration is MUTATE else "validate"
        names = [entry["name"] for entry in configuration["webhooks"]]
        assert configuration["metadata"]["name"] == NAME
        assert len(set(names)) == len(names)
        for entry in configuration["webhooks"]:
            assert re.fullmatch(rf"[a-z]+(-[a-z]+)*\.{verb}\.virt-admit\.io", entry["name"])
            assert set(entry) == ENTRY_KEYS | (
                {"reinvocationPolicy"} if configuration is MUTATE else set()
            )
            assert entry["admissionReviewVersions"] == ["v1"]
            assert entry["clientConfig"] == {
                "service": {
                    "namespace": NAMESPACE,
                    "name": SERVICE,
                    "path": f"/{verb}",
                    "port": 443,
                }
            }
            assert entry["failurePolicy"] == "Ignore"
            assert entry["sideEffects"] == "None"
            assert entry["timeoutSeconds"] <= (5 if configuration is VALIDATE else 3)
            assert entry["objectSelector"] == {}
            conditions = [condition["name"] for condition in entry["matchConditions"]]
            assert len(set(conditions)) == len(conditions) <= 64

    def test_mutation_is_repeated_when_others_change_the_object(self):
        assert [entry["reinvocationPolicy"] for entry in MUTATE["webhooks"]] == ["IfNeeded"]

    @pytest.mark.parametrize("trusted", [("openshift-cnv",), ("virt", "virt-2")])
    def test_the_accounts_of_kubevirt_pass_from_the_trusted_namespaces_alone(self, trusted):
        def users(configurations):
            texts = [
                condition["expression"]
                for each in configurations
                for entry in each["webhooks"]
                for condition in entry["matchConditions"]
                if condition["name"] == "not-kubevirt-itself"
            ]
            assert len(texts) == 3
            return {re.search(r"'\^system:serviceaccount:\(([^)]*)\):", text)[1] for text in texts}

        assert users([MUTATE, VALIDATE]) == {"kubevirt|kubevirt-hyperconverged|openshift-cnv"}
        flags = [f"--trusted-namespace={name}" for name in trusted]
        printed = CliRunner().invoke(
            main.virt_admit, ["manifests", "--part=webhooks", *flags], catch_exceptions=False
        )
        assert users(yaml.safe_load_all(printed.output)) == {"|".join(trusted)}
        assert users(manifests.trusting_only(RULES, trusted)) == {"|".join(trusted)}

    def test_a_trusted_namespace_is_a_name(self):
        refused = CliRunner().invoke(main.virt_admit, ["manifests", "--trusted-namespace=a|[^:]+"])
        assert (refused.exit_code, "'a|[^:]+' is not a namespace name" in refused.output) == (
            2,
            True,
        )

    def test_versions_are_converted_except_where_the_sent_one_is_judged(self):
        assert [entry.name for entry in ENTRIES if entry.exact] == ["hyperconverged"]
        assert [entry["matchPolicy"] for entry in VALIDATE["webhooks"]].count("Exact") == 1

    @for_each("entry", [*VALIDATE["webhooks"], *MUTATE["webhooks"]], lambda entry: entry["name"])
    def test_namespaces_that_are_left_out(self, entry):
        names, opt_out = entry["namespaceSelector"]["matchExpressions"]
        machines = entry["name"].startswith(("virtual-machines.", "instances.", "clones."))
        assert names == {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system", "virt-admit", *(KUBEVIRT_NAMESPACES if machines else ())],
        }
        assert opt_out == {"key": "virt-admit.io/ignore", "operator": "NotIn", "values": ["true"]}

    @pytest.mark.parametrize("configuration", [MUTATE, VALIDATE], ids=lambda each: each["kind"])
    def test_what_must_never_pass_through_us(self, configuration):
        for group, resource in registered(configuration):
            assert "*" not in group + resource
            assert not resource.endswith("/status")
            assert resource.partition("/")[0] not in {
                "pods",
                "leases",
                "secrets",
                "configmaps",
                "services",
                "events",
            }
            assert group not in {
                "authentication.k8s.io",
                "authorization.k8s.io",
                "admissionregistration.k8s.io",
            }

    def test_deletions_only_of_machines(self):
        deleted = [
            rule["resources"]
            for entry in VALIDATE["webhooks"]
            for rule in entry["rules"]
            if "DELETE" in rule["operations"]
        ]
        assert deleted == [["machines"]]

    def test_objects_that_are_being_deleted_are_left_alone(self):
        for entry in ENTRIES:
            assert entry.name == "nodes" or manifests.NOT_DELETED in entry.conditions
        for entry in VALIDATE["webhooks"]:
            for rule in entry["rules"]:
                assert (rule["operations"] == ["CREATE"]) == entry["name"].startswith("instances.")

    def test_a_url_carries_the_ca(self):
        (mutate,), _ = (
            each["webhooks"] for each in manifests.webhooks(RULES, "https://h:1/", b"PEM")
        )
        assert mutate["clientConfig"] == {"url": "https://h:1/mutate", "caBundle": "UEVN"}


@for_each("file", FILES)
def test_no_file_deletes_several_objects(file):
    """kubectl 1.32 and before would crash (kubernetes-sigs/kustomize#5471)."""
    deletions = [
        obj for obj in yaml.safe_load_all(file.read_text()) if obj and obj.get("$patch") == "delete"
    ]
    assert len(deletions) <= 1


@for_each("file", FILES)
def test_shipped_yaml_has_no_ca_bundle(file):
    assert not re.search(r"^[ -]*caBundle:", file.read_text(), re.MULTILINE)


class TestPods:
    PODS = (
        ("base/workload.yaml", "Deployment", lambda obj: obj["spec"]["template"]["spec"]),
        (
            "scan/cronjob.yaml",
            "CronJob",
            lambda obj: obj["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        ),
    )

    @pytest.mark.parametrize(
        ("path", "kind", "pod"), PODS, ids=lambda each: each if isinstance(each, str) else ""
    )
    def test_it_may_do_nothing_that_it_need_not(self, path, kind, pod):
        spec = pod(one(path, kind))
        (container,) = spec["containers"]
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert spec["enableServiceLinks"] is False
        assert container["resources"]["limits"].keys() == {"memory"}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        tmp = {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
        assert [volume for volume in spec["volumes"] if "emptyDir" in volume] == [tmp]

    def test_two_pods_apart_of_which_one_may_go(self):
        deployment, budget = (
            one("base/workload.yaml", kind)["spec"]
            for kind in ("Deployment", "PodDisruptionBudget")
        )
        pod = deployment["template"]["spec"]
        assert (deployment["replicas"], budget["minAvailable"]) == (2, 1)
        assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 1
        (apart,) = pod["affinity"]["podAntiAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        assert apart["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
        assert [spread["topologyKey"] for spread in pod["topologySpreadConstraints"]] == [
            "topology.kubernetes.io/zone"
        ]

    def test_every_selector_selects_the_webhook_and_not_the_scan(self):
        def selects(labels: dict[str, str], component: str) -> bool:
            return labels.items() <= manifests.labels(component).items()

        service, budget, deployment = (
            one("base/workload.yaml", kind)["spec"]
            for kind in ("Service", "PodDisruptionBudget", "Deployment")
        )
        policy = one("base/network.yaml", "NetworkPolicy")["spec"]
        monitor = one("monitoring/servicemonitor.yaml", "ServiceMonitor")["spec"]
        for labels in (
            service["selector"],
            budget["selector"]["matchLabels"],
            deployment["selector"]["matchLabels"],
            policy["podSelector"]["matchLabels"],
            monitor["selector"]["matchLabels"],
        ):
            assert selects(labels, "webhook")
            assert not selects(labels, "scan")

    def test_it_has_the_time_that_it_needs_to_stop(self):
        grace = one("base/workload.yaml", "Deployment")["spec"]["template"]["spec"][
            "terminationGracePeriodSeconds"
        ]
        assert grace >= max(Settings().stop_delay + DRAIN_SECONDS + 5, 20)

    def test_its_flags_are_those_of_serve(self, tmp_path):
        (container,) = one("base/workload.yaml", "Deployment")["spec"]["template"]["spec"][
            "containers"
        ]
        verb, *flags = container["args"]
        context = serve.command.make_context(verb, flags)
        settings = serve.settings(context.params, {serve.IN_CLUSTER: "10.0.0.1"})
        environment = {each["name"]: each["value"] for each in container["env"]}
        assert (
            PolicyConfigMap.parse(environment["VIRT_ADMIT_POLICY_CONFIGMAP"])
            == PolicyConfigMap.parse()
        )
        assert verb == "serve"
        assert settings.live
        assert settings.certs.secret == CERTS_SECRET
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert (settings.bind, settings.ops_bind) == (
            f"0.0.0.0:{ports['https']}",
            f"0.0.0.0:{ports['ops']}",
        )
        service = {
            port["port"]: port["targetPort"]
            for port in one("base/workload.yaml", "Service")["spec"]["ports"]
        }
        assert service == {443: "https", 8080: "ops"}

    def test_a_finding_of_the_scan_is_no_failure_of_its_job(self):
        pod = one("scan/cronjob.yaml", "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        verb, *flags = container["args"]
        flags = scan.command.make_context(verb, flags).params
        assert (verb, flags["fail_on"]) == ("scan", "never")
        assert PolicyConfigMap.parse(flags["policy_configmap"]) == PolicyConfigMap.parse()
        assert flags["policy_name"] is None

    def test_an_external_certificate_has_the_names_and_the_place(self):
        (container,) = one("components/external/serve.yaml", "Deployment")["spec"]["template"][
            "spec"
        ]["containers"]
        (variable,) = container["env"]
        (mount,) = container["volumeMounts"]
        assert variable == {"name": "VIRT_ADMIT_CERTS_EXTERNAL", "value": mount["mountPath"]}
        certificates = [
            obj["spec"]
            for obj in objects("components/cert-manager/certificates.yaml")
            if obj["kind"] == "Certificate"
        ]
        assert [
            each["secretName"]
            for each in certificates
            if tuple(each.get("dnsNames", ())) == SERVICE_NAMES
        ] == ["virt-admit-serving"]

    def test_labels_of_kustomizations_are_those_of_the_code(self):
        labelled = [
            (file, block["pairs"])
            for file in FILES
            if file.name == "kustomization.yaml"
            for block in yaml.safe_load(file.read_text()).get("labels", ())
        ]
        assert len(labelled) == 5
        for file, pairs in labelled:
            assert pairs == manifests.labels(
                file.parent.name if file.parent.name in ("scan", "watch") else "webhook"
            ), file


def test_what_is_no_certificate_is_not_printed_as_one(tmp_path):
    (tmp_path / "ca.crt").write_bytes(b"\x7fELF")
    done = CliRunner().invoke(
        main.virt_admit,
        ["manifests", "--url", "https://127.0.0.1:8443", "--ca-file", str(tmp_path / "ca.crt")],
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert "ca.crt contains no PEM certificate" in done.stderr
