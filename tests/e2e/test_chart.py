"""What ``helm template`` prints: the objects of the kustomizations,
and clear errors for values that are not valid.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.apiserver.control_plane import ControlPlane
from tests.e2e.helm import Helm
from tests.paths import MANIFESTS
from tools.chart.chart import CHART, COMPONENTS
from virt_admit import __version__
from virt_admit.install import manifests
from virt_admit.rules import load_rules

Objects = dict[tuple[str, str, str], dict[str, Any]]
OWN_LABELS = ("app.kubernetes.io/managed-by", "helm.sh/chart")
DIGEST = "sha256:" + "0" * 64

CASES: dict[str, tuple[list[str], list[str]]] = {
    "base": ([], []),
    "audit": (["mode=audit"], ["audit"]),
    "enforce": (["mode=enforce"], ["enforce", "enforce/webhooks"]),
    "external": (["certificates=external"], ["external"]),
    "cert-manager": (["certificates=cert-manager"], ["cert-manager", "cert-manager/webhooks"]),
    "openshift": (["certificates=openshift"], ["openshift", "openshift/webhooks"]),
    "medik8s": (["medik8s=true"], ["medik8s"]),
    "scan": (["scan.enabled=true"], ["scan"]),
    "scan-reports": (["scan.enabled=true", "scan.reports=true"], ["scan", "scan-reports"]),
    "watch": (["watch.enabled=true"], ["watch"]),
    "watch-reports": (["watch.enabled=true", "watch.reports=true"], ["watch", "watch-reports"]),
    "monitoring": (["monitoring.enabled=true"], ["monitoring"]),
    "all": (
        [
            *("mode=enforce", "certificates=openshift", "medik8s=true", "monitoring.enabled=true"),
            *("scan.enabled=true", "scan.reports=true", "watch.enabled=true", "watch.reports=true"),
        ],
        [
            *(
                "enforce",
                "enforce/webhooks",
                "openshift",
                "openshift/webhooks",
                "medik8s",
                "monitoring",
            ),
            *("scan", "scan-reports", "watch", "watch-reports"),
        ],
    ),
}
"""By name: the values, and the components and other kustomizations that have the same effect."""


def by_name(text: str) -> Objects:
    """Return the objects by kind, namespace and name,
    without what helm itself writes and without the Namespace.
    """
    found: Objects = {}
    for obj in yaml.load_all(text, yaml.CSafeLoader):
        if obj and obj["kind"] != "Namespace":
            for labels in labels_in(obj):
                for name in OWN_LABELS:
                    labels.pop(name, None)
            key = (obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            assert key not in found
            found[key] = obj
    return found


def labels_in(tree: Any) -> Iterator[dict[str, str]]:
    """Yield the labels of an object and of its pod templates."""
    if isinstance(tree, dict):
        if "labels" in tree.get("metadata", {}):
            yield tree["metadata"]["labels"]
        for value in tree.values():
            yield from labels_in(value)


def template(helm: Helm, values: list[str], *flags: str) -> subprocess.CompletedProcess[str]:
    sets = [f"--set={value}" for value in values]
    return helm.run("template", "virt-admit", CHART, "--namespace=virt-admit", *sets, *flags)


def rendered(helm: Helm, values: list[str], *flags: str) -> Objects:
    done = template(helm, values, *flags)
    assert (done.returncode, done.stderr) == (0, "")
    return by_name(done.stdout)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(MANIFESTS, folder / "manifests")
    return folder


def kustomized(plane: ControlPlane, checkout: Path, parts: list[str]) -> Objects:
    """Build each kustomization with its components, as docs/install.md does."""
    found: Objects = {}
    own = [part for part in parts if part in ("scan", "watch", "monitoring")]
    for resource in ("base", "webhooks", *own):
        mine = tuple(part for part in parts if part not in own and belongs(part) == resource)
        built = kustomization(plane, checkout, resource, mine)
        assert not found.keys() & built.keys()
        found |= built
    return found


@functools.cache
def kustomization(
    plane: ControlPlane, checkout: Path, resource: str, components: tuple[str, ...]
) -> Objects:
    """Build a kustomization; once, for several cases and both versions of helm have the same
    ones.
    """
    used = [f"../manifests/components/{part}" for part in components]
    (checkout / "ours").mkdir(exist_ok=True)
    (checkout / "ours" / "kustomization.yaml").write_text(
        json.dumps({"resources": [f"../manifests/{resource}"], "components": used})
    )
    return by_name(plane.kubectl("kustomize", checkout / "ours", check=True).stdout)


def belongs(component: str) -> str:
    """Return the kustomization that a component changes."""
    if component.endswith("/webhooks"):
        return "webhooks"
    return component.removesuffix("-reports") if component.endswith("-reports") else "base"


def test_every_component_is_a_case() -> None:
    folders = {
        file.parent.relative_to(MANIFESTS / "components")
        for file in MANIFESTS.glob("components/**/*.yaml")
    }
    assert {str(folder) for folder in folders} == COMPONENTS.keys()
    assert {part for _, parts in CASES.values() for part in parts} > COMPONENTS.keys()


@pytest.mark.parametrize("case", CASES)
def test_the_chart_prints_what_kustomize_builds(
    control_plane: ControlPlane, helm: Helm, checkout: Path, case: str
) -> None:
    values, parts = CASES[case]
    ours = rendered(helm, values, "--is-upgrade")  # mode enforce is refused at the first install
    theirs = kustomized(control_plane, checkout, parts)
    assert len(theirs) >= 13
    assert ours.keys() == theirs.keys()
    for key, obj in theirs.items():
        assert ours[key] == obj, key


def test_an_object_of_the_release_says_so(helm: Helm) -> None:
    done = template(helm, ["scan.enabled=true", "watch.enabled=true", "monitoring.enabled=true"])
    for obj in yaml.load_all(done.stdout, yaml.CSafeLoader):
        assert obj["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        assert obj["metadata"]["labels"]["helm.sh/chart"].startswith("virt-admit-")
        assert '"caBundle":' not in json.dumps(obj)


BAD = {
    "mod=audit": "mod",
    "mode=audits": "mode",
    "replicas=-1": "replicas",
    "replicas=two": "replicas",
    "certificates=certmanager": "certificates",
    "image.digest=sha256:abc": "image.digest",
    "image.registry=example.com": "registry",
    "scan.enabled=1": "scan.enabled",
    "scan.schedule=hourly": "scan.schedule",
    "port=80": "port",
    "trustedNamespaces={a|b}": "trustedNamespaces",
    "resources.requests.cpu=much": "resources.requests.cpu",
    "policy=7": "policy",
    "monitoring.docsUrl=docs": "monitoring.docsUrl",
    "monitoring.docsUrl=https://": "monitoring.docsUrl",
    "monitoring.docsUrl=https://user@git.example.com/docs": "monitoring.docsUrl",
    "monitoring.docsUrl=https://git.example.com/docs?page=1": "monitoring.docsUrl",
}


@pytest.mark.parametrize("value", BAD)
def test_a_bad_value_is_named(helm: Helm, value: str) -> None:
    done = template(helm, [value])
    assert (done.returncode, done.stdout) == (1, "")
    assert "values don't meet the specifications of the schema" in done.stderr
    assert BAD[value] in done.stderr.replace("/", ".")
    assert "goroutine" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--set=mode=enforce",), "mode enforce is refused at the first install"),
        (
            ("--set=mode=enforce", "--is-upgrade", "--set=replicas=1"),
            "mode enforce needs at least 2 replicas",
        ),
        (("--namespace=default",), "the namespace of the release is default"),
    ],
)
def test_what_a_schema_cannot_refuse(helm: Helm, flags: tuple[str, ...], text: str) -> None:
    done = template(helm, [], *flags)
    assert (done.returncode, done.stdout) == (1, "")
    assert text in done.stderr


@pytest.fixture(scope="module")
def empty(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server of its own: Helm 4 refuses what other tests applied without it."""
    with ControlPlane(control_plane.binaries) as plane:
        yield plane


def test_a_cluster_that_is_too_old(helm: Helm, empty: ControlPlane) -> None:
    """The flag stands for such a cluster. Helm 4 ignores it and takes the version of the server."""
    of_empty = replace(helm, kubeconfig=empty.kubeconfig)
    done = template(of_empty, [], "--dry-run=server", "--kube-version=1.29.3")
    refused = "virt-admit needs Kubernetes 1.30 or later; this cluster has v1.29.3" in done.stderr
    assert (done.returncode, refused) == ((1, True) if helm.major == 3 else (0, False))


def deployment(helm: Helm, *values: str) -> dict[str, Any]:
    return rendered(helm, list(values))["Deployment", "virt-admit", "virt-admit-webhook"]["spec"]


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ((), "virt-admit"),
        (("image.repository=r.example.com/v",), f"r.example.com/v:{__version__}"),
        (("image.repository=r.example.com/v", "image.tag=main"), "r.example.com/v:main"),
        (
            ("image.repository=r.example.com/v", "image.tag=main", f"image.digest={DIGEST}"),
            f"r.example.com/v@{DIGEST}",
        ),
    ],
)
def test_images(helm: Helm, values: tuple[str, ...], image: str) -> None:
    found = rendered(helm, [*values, "scan.enabled=true", "watch.enabled=true"])
    pods = [
        obj["spec"].get("jobTemplate", obj)["spec"]["template"]["spec"]
        for obj in found.values()
        if obj["kind"] in ("Deployment", "CronJob")
    ]
    assert [each["containers"][0]["image"] for each in pods] == [image] * 3


def test_settings_of_the_pods(helm: Helm) -> None:
    spec = deployment(
        *(
            helm,
            "replicas=3",
            "port=10250",
            "nodeSelector.zone=a",
            "tolerations[0].operator=Exists",
        ),
        *("imagePullSecrets[0].name=registry", "resources.limits.memory=1Gi"),
    )
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["replicas"] == 3
    assert container["args"] == ["serve", "--live", "--bind=0.0.0.0:10250"]
    assert container["ports"][0] == {"name": "https", "containerPort": 10250, "protocol": "TCP"}
    assert container["resources"] == {
        "requests": {"cpu": "50m", "memory": "128Mi"},
        "limits": {"memory": "1Gi"},
    }
    assert pod["nodeSelector"] == {"zone": "a"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]


def test_a_single_pod_has_no_disruption_budget(helm: Helm) -> None:
    kinds = {kind for kind, _, _ in rendered(helm, ["replicas=1"])}
    assert kinds == {kind for kind, _, _ in rendered(helm, [])} - {"PodDisruptionBudget"}


def test_network_policies_can_be_left_out(helm: Helm) -> None:
    found = rendered(helm, ["networkPolicy.enabled=false", "watch.enabled=true"])
    assert "NetworkPolicy" not in {kind for kind, _, _ in found}


@pytest.mark.parametrize("more", [[], ["certificates=openshift"]])
def test_the_trusted_namespaces_are_those_of_the_value(helm: Helm, more: list[str]) -> None:
    found = rendered(helm, ["trustedNamespaces={virt,virt-2}", *more])
    for wanted in manifests.webhooks(load_rules().at_admission, trusted=("virt", "virt-2")):
        assert found[wanted["kind"], "", "virt-admit"]["webhooks"] == wanted["webhooks"]


@pytest.mark.parametrize(
    "policy", [{"extends": "strict"}, "# ours\nextends: strict\n"], ids=["map", "text"]
)
def test_the_policy_is_created_once_and_kept(helm: Helm, tmp_path: Path, policy: object) -> None:
    (tmp_path / "values.yaml").write_text(json.dumps({"policy": policy}))
    obj = rendered(helm, [], f"--values={tmp_path}/values.yaml")[
        "ConfigMap", "virt-admit", "virt-admit-policy"
    ]
    assert yaml.safe_load(obj["data"]["policy.yaml"]) == {"extends": "strict"}
    assert isinstance(policy, dict) or obj["data"]["policy.yaml"] == policy
    assert obj["metadata"]["annotations"] == {
        "helm.sh/hook": "pre-install,pre-upgrade",
        "helm.sh/hook-delete-policy": "hook-failed",
        "helm.sh/resource-policy": "keep",
    }


def test_alerts_link_to_the_pages_of_the_value(helm: Helm) -> None:
    found = rendered(
        helm, ["monitoring.enabled=true", "monitoring.docsUrl=https://git.example.com/docs/"]
    )
    groups = found["PrometheusRule", "virt-admit", "virt-admit"]["spec"]["groups"]
    links = {rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]}
    assert "https://git.example.com/docs/runbooks/VirtAdmitDown.md" in links
    parsed = [urlsplit(link) for link in links]
    assert {(link.scheme, link.netloc) for link in parsed} == {("https", "git.example.com")}
    assert {str(PurePosixPath(link.path).parent) for link in parsed} == {"/docs/runbooks"}


HOSTILE = "a'b\"c: d\n  evil: true\n# {{ x }} \u2028"


def test_values_stay_values_whatever_they_contain(helm: Helm, tmp_path: Path) -> None:
    policy = f"  # ours \t{HOSTILE}\r\nextends: strict\x01\n\n"
    given = {
        "policy": policy,
        "image": {"repository": HOSTILE, "tag": "1"},
        "imagePullSecrets": [{"name": HOSTILE}],
        "nodeSelector": {HOSTILE: HOSTILE},
        "tolerations": [{"key": HOSTILE}],
        "scan": {"enabled": True, "schedule": "* * * * '\"{{"},
        "monitoring": {"enabled": True, "docsUrl": "https://git.example.com/it's\"{{x}}'/"},
    }
    (tmp_path / "values.yaml").write_text(json.dumps(given))
    found = rendered(helm, [], f"--values={tmp_path}/values.yaml")
    pod = found["Deployment", "virt-admit", "virt-admit-webhook"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"{HOSTILE}:1"
    assert [pod[key] for key in ("imagePullSecrets", "nodeSelector", "tolerations")] == [
        given[key] for key in ("imagePullSecrets", "nodeSelector", "tolerations")
    ]
    (job,) = [obj for (kind, _, _), obj in found.items() if kind == "CronJob"]
    assert job["spec"]["schedule"] == "* * * * '\"{{"
    groups = found["PrometheusRule", "virt-admit", "virt-admit"]["spec"]["groups"]
    assert groups[0]["rules"][0]["annotations"]["runbook_url"].startswith(
        "https://git.example.com/it's\"{{x}}'/runbooks/"
    )
    assert found["ConfigMap", "virt-admit", "virt-admit-policy"]["data"]["policy.yaml"] == policy


def test_helm_lint_finds_nothing(helm: Helm) -> None:
    done = helm.run("lint", CHART, "--strict", "--namespace=virt-admit")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout
