"""A cluster in which virt-admit is installed soundly, and ways to change it."""

from __future__ import annotations

import base64
import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from tests.paths import ROOT
from virt_admit.install import manifests
from virt_admit.install.doctor import diagnose
from virt_admit.install.observations import CheckObservation, Status
from virt_admit.rules import load_rules
from virt_admit.settings import SERVICE_NAMES
from virt_admit_certs.certificates import certs_pem, new_serving, new_signer

RULES = load_rules()


NOW = datetime(2026, 11, 1, tzinfo=UTC)


VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


NAMESPACE = "/api/v1/namespaces/virt-admit"


SERVICE = f"{NAMESPACE}/services/virt-admit-webhook"


SECRET = f"{NAMESPACE}/secrets/virt-admit-certs"


POLICY = f"{NAMESPACE}/configmaps/virt-admit-policy"


DEPLOYMENT = "/apis/apps/v1/namespaces/virt-admit/deployments/virt-admit-webhook"


SLICES = (
    "/apis/discovery.k8s.io/v1/namespaces/virt-admit/endpointslices?kubernetes.io/service-name="
    "virt-admit-webhook"
)


GUARDS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{plural}/virt-admit-configurations"
    for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
)


OTHERS = "/apis/discovery.k8s.io/v1/namespaces/other/endpointslices?kubernetes.io/service-name=hook"


REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


SIGNER = new_signer(NOW - timedelta(days=5), timedelta(days=30))


SERVING = new_serving(SIGNER, SERVICE_NAMES, NOW - timedelta(hours=1), timedelta(hours=48))


STRANGER = new_signer(NOW - timedelta(days=5), timedelta(days=30))


def encoded(*certs: Any) -> str:
    return base64.b64encode(certs_pem(certs)).decode()


class Cluster:
    """An API server with these ``objects`` that allows every right except those in ``refused``."""

    def __init__(self) -> None:
        validating, mutating = (
            {"items": [obj]} for obj in reversed(manifests.webhooks(RULES.at_admission))
        )
        for entry in (*validating["items"][0]["webhooks"], *mutating["items"][0]["webhooks"]):
            entry["clientConfig"]["caBundle"] = encoded(SIGNER.cert)
        shipped = {
            obj["kind"]: obj
            for file in ("namespace", "workload")
            for obj in yaml.safe_load_all(
                (ROOT / "manifests" / "base" / f"{file}.yaml").read_text()
            )
        }
        shipped["Deployment"]["metadata"]["labels"] = manifests.labels()
        shipped["Namespace"]["metadata"]["labels"]["kubernetes.io/metadata.name"] = "virt-admit"
        self.objects: dict[str, Any] = {
            "/version": {"gitVersion": "v1.36.3"},
            "/metrics": (
                'apiserver_admission_webhook_fail_open_count{name="x.example.com",type='
                '"validating"} 3\n'
            ),
            VALIDATING: validating,
            MUTATING: mutating,
            NAMESPACE: shipped["Namespace"],
            SERVICE: shipped["Service"],
            DEPLOYMENT: shipped["Deployment"],
            POLICY: {"data": {"policy.yaml": "extends: default\n"}},
            SLICES: slices(True, True),
            **{path: {} for path in GUARDS},
            SECRET: {"data": {"tls.crt": encoded(SERVING.cert)}},
        }
        self.refused: set[tuple[str, str]] = set()
        """Verb and resource."""
        self.posted: list[dict[str, Any]] = []

    def get(self, path: str, **query: str) -> Any:
        found = self.objects.get("?".join([path, *query.values()]))
        if isinstance(found, Exception):
            raise found
        return copy.deepcopy(found)

    def text(self, path: str) -> Any:
        return self.get(path)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        assert path == REVIEW
        self.get(path)
        self.posted.append(body)
        wanted = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": (wanted["verb"], wanted["resource"]) not in self.refused}}

    def entries(self, path: str = VALIDATING) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.objects[path]["items"][0]["webhooks"]
        return found

    def diagnose(self, connect: Any = None) -> list[CheckObservation]:
        return diagnose(self, RULES, NOW, connect)


def slices(*ready: bool | None) -> dict[str, Any]:
    endpoints = [
        {"addresses": [f"10.0.0.{number}"], "conditions": {} if each is None else {"ready": each}}
        for number, each in enumerate(ready)
    ]
    return {"items": [{"endpoints": endpoints}, {"endpoints": None}]}


def unsound(found: list[CheckObservation]) -> list[tuple[str, str]]:
    return [(each.topic, each.text) for each in found if each.status is not Status.OK]


def hook(plurals: list[str], group: str = "kubevirt.io", **fields: Any) -> dict[str, Any]:
    rule = {"apiGroups": [group], "apiVersions": ["*"], "resources": plurals, "operations": ["*"]}
    service = {"namespace": "other", "name": "hook"}
    return {
        "name": "h.example.com",
        "clientConfig": {"service": service},
        "rules": [rule],
        **fields,
    }


def add_hook(cluster: Cluster, entry: dict[str, Any]) -> None:
    cluster.objects[VALIDATING]["items"].append(
        {"metadata": {"name": "other"}, "webhooks": [entry]}
    )


def change(text: str, cluster: Cluster) -> None:
    cluster.objects[POLICY]["data"]["policy.yaml"] = text


def serve_external(cluster: Cluster) -> None:
    """As the overlays openshift and cert-manager do."""
    patch = yaml.safe_load(
        (ROOT / "manifests" / "components" / "external" / "serve.yaml").read_text()
    )
    new = patch["spec"]["template"]["spec"]
    pod = cluster.objects[DEPLOYMENT]["spec"]["template"]["spec"]
    pod["volumes"] += new["volumes"]
    for key in ("env", "volumeMounts"):
        pod["containers"][0].setdefault(key, []).extend(new["containers"][0][key])


def serve_cert(cluster: Cluster, *chain: Any) -> None:
    cluster.objects[SECRET] = {"data": {"tls.crt": encoded(*chain)}}
