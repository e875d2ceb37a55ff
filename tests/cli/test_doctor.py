"""The doctor: a sound cluster is called sound, and each thing that is broken is named."""

from __future__ import annotations

import base64
import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.paths import ROOT
from virt_admit import __version__
from virt_admit.cli import doctor
from virt_admit.install import manifests
from virt_admit.install.doctor import Observation, Status, diagnose, exit_code
from virt_admit.install.inspect import Unreadable
from virt_admit.rules import load_rules
from virt_admit.settings import SERVICE_NAMES
from virt_admit_certs.certificates import certs_pem, new_cross, new_serving, new_signer

RULES = load_rules()
NOW = datetime(2026, 11, 1, tzinfo=UTC)

VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
NAMESPACE = "/api/v1/namespaces/virt-admit"
SERVICE = f"{NAMESPACE}/services/virt-admit-webhook"
SECRET = f"{NAMESPACE}/secrets/virt-admit-certs"
POLICY = f"{NAMESPACE}/configmaps/virt-admit-policy"
DEPLOYMENT = "/apis/apps/v1/namespaces/virt-admit/deployments/virt-admit-webhook"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/virt-admit/endpointslices?kubernetes.io/service-name=virt-admit-webhook"
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
        validating, mutating = ({"items": [obj]} for obj in reversed(manifests.webhooks(RULES.at_admission)))
        for entry in (*validating["items"][0]["webhooks"], *mutating["items"][0]["webhooks"]):
            entry["clientConfig"]["caBundle"] = encoded(SIGNER.cert)
        shipped = {
            obj["kind"]: obj
            for file in ("namespace", "workload", "policy")
            for obj in yaml.safe_load_all((ROOT / "manifests" / "base" / f"{file}.yaml").read_text())
        }
        shipped["Deployment"]["metadata"]["labels"] = manifests.labels()
        shipped["Namespace"]["metadata"]["labels"]["kubernetes.io/metadata.name"] = "virt-admit"
        self.objects: dict[str, Any] = {
            "/version": {"gitVersion": "v1.36.3"},
            "/metrics": 'apiserver_admission_webhook_fail_open_count{name="x.example.com",type="validating"} 3\n',
            VALIDATING: validating,
            MUTATING: mutating,
            NAMESPACE: shipped["Namespace"],
            SERVICE: shipped["Service"],
            DEPLOYMENT: shipped["Deployment"],
            POLICY: shipped["ConfigMap"],
            SLICES: slices(True, True),
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

    def diagnose(self, connect: Any = None) -> list[Observation]:
        return diagnose(self, RULES, NOW, connect)


def slices(*ready: bool | None) -> dict[str, Any]:
    endpoints = [
        {"addresses": [f"10.0.0.{number}"], "conditions": {} if each is None else {"ready": each}}
        for number, each in enumerate(ready)
    ]
    return {"items": [{"endpoints": endpoints}, {"endpoints": None}]}


def unsound(found: list[Observation]) -> list[tuple[str, str]]:
    return [(each.topic, each.text) for each in found if each.status is not Status.OK]


def test_a_sound_cluster_is_sound():
    found = Cluster().diagnose()
    assert unsound(found) == []
    assert exit_code(found) == 0
    assert [each.topic for each in found] == [
        *("versions", "registration", "own namespace", "endpoints", "trust", "trust", "rights", "policy"),
        *("other webhooks", "failing open"),
    ]


def hook(plurals: list[str], group: str = "kubevirt.io", **fields: Any) -> dict[str, Any]:
    rule = {"apiGroups": [group], "apiVersions": ["*"], "resources": plurals, "operations": ["*"]}
    service = {"namespace": "other", "name": "hook"}
    return {"name": "h.example.com", "clientConfig": {"service": service}, "rules": [rule], **fields}


def add_hook(cluster: Cluster, entry: dict[str, Any]) -> None:
    cluster.objects[VALIDATING]["items"].append({"metadata": {"name": "other"}, "webhooks": [entry]})


def change(text: str, cluster: Cluster) -> None:
    cluster.objects[POLICY]["data"]["policy.yaml"] = text


def serve_external(cluster: Cluster) -> None:
    """As the overlays openshift and cert-manager do."""
    patch = yaml.safe_load((ROOT / "manifests" / "components" / "external" / "serve.yaml").read_text())
    new = patch["spec"]["template"]["spec"]
    pod = cluster.objects[DEPLOYMENT]["spec"]["template"]["spec"]
    pod["volumes"] += new["volumes"]
    for key in ("env", "volumeMounts"):
        pod["containers"][0].setdefault(key, []).extend(new["containers"][0][key])


WRONG = {
    "an old Kubernetes": (
        lambda c: c.objects.update({"/version": {"gitVersion": "v1.29.9"}}),
        ("versions", "Kubernetes 1.29.9 is older than 1.30"),
    ),
    "no validating configuration": (
        lambda c: c.objects[VALIDATING].update(items=[]),
        ("registration", "ValidatingWebhookConfiguration virt-admit does not exist: no object is judged"),
    ),
    "no mutating configuration": (
        lambda c: c.objects.pop(MUTATING),
        ("registration", "MutatingWebhookConfiguration virt-admit does not exist: no object gets its defaults"),
    ),
    "an entry is missing": (
        lambda c: c.entries().pop(),
        ("registration", "has no entry configuration.validate.virt-admit.io"),
    ),
    "a kind is not asked about": (
        lambda c: c.entries()[0]["rules"].pop(0),
        (
            "registration",
            "virtual-machines.validate.virt-admit.io does not send CREATE of virtualmachines, UPDATE of",
        ),
    ),
    "Fail where it must not be": (
        lambda c: c.entries()[-1].update(failurePolicy="Fail"),
        ("registration", "configuration.validate.virt-admit.io has failurePolicy Fail"),
    ),
    "Fail by default": (
        lambda c: c.entries(MUTATING)[0].pop("failurePolicy"),
        ("registration", "virtual-machines.mutate.virt-admit.io has failurePolicy Fail"),
    ),
    "our own namespace": (
        lambda c: c.entries()[3].pop("namespaceSelector"),
        ("own namespace", "machines.validate.virt-admit.io would send objects of our own namespace"),
    ),
    "no Service": (
        lambda c: c.objects.pop(SERVICE),
        ("endpoints", "Service virt-admit/virt-admit-webhook does not exist"),
    ),
    "another port": (
        lambda c: c.objects[SERVICE]["spec"]["ports"].pop(0),
        ("endpoints", "Service virt-admit/virt-admit-webhook has no port 443"),
    ),
    "no ready endpoint": (
        lambda c: c.objects.update({SLICES: slices(False, False)}),
        ("endpoints", "0 endpoints of Service virt-admit/virt-admit-webhook are ready"),
    ),
    "no endpoint": (lambda c: c.objects.pop(SLICES), ("endpoints", "0 endpoints of Service")),
    "one replica under Fail": (
        lambda c: (c.objects.update({SLICES: slices(None, False)}), c.entries()[0].update(failurePolicy="Fail")),
        ("endpoints", "1 endpoint of Service virt-admit/virt-admit-webhook is ready: while it restarts"),
    ),
    "no Secret": (
        lambda c: c.objects.pop(SECRET),
        ("trust", "Secret virt-admit/virt-admit-certs contains no certificate"),
    ),
    "an empty Secret": (lambda c: c.objects[SECRET].update(data={"tls.crt": ""}), ("trust", "contains no certificate")),
    "an expired certificate": (
        lambda c: serve_cert(c, new_serving(SIGNER, SERVICE_NAMES, NOW - timedelta(days=3), timedelta(days=2)).cert),
        ("trust", "the certificate is valid from 2026-10-28 23:00 to 2026-10-31 00:00 UTC"),
    ),
    "a certificate that is not renewed": (
        lambda c: serve_cert(
            c, new_serving(SIGNER, SERVICE_NAMES, NOW - timedelta(hours=40), timedelta(hours=48)).cert
        ),
        ("trust", "the certificate expires at 2026-11-01 08:00 UTC and was not renewed"),
    ),
    "another name": (
        lambda c: serve_cert(c, new_serving(SIGNER, ["w.other.svc"], NOW, timedelta(hours=48)).cert),
        ("trust", "the certificate is for w.other.svc, not for virt-admit-webhook.virt-admit.svc"),
    ),
    "another CA": (
        lambda c: c.entries()[2]["clientConfig"].update(caBundle=encoded(STRANGER.cert)),
        ("trust", "health-checks.validate.virt-admit.io: caBundle does not trust the served certificate"),
    ),
    "no bundle": (
        lambda c: c.entries()[2]["clientConfig"].pop("caBundle"),
        ("trust", "health-checks.validate.virt-admit.io: caBundle is empty"),
    ),
    "a bundle of garbage": (
        lambda c: c.entries()[2]["clientConfig"].update(caBundle=base64.b64encode(b"no PEM").decode()),
        ("trust", "health-checks.validate.virt-admit.io: caBundle has no valid CA certificate"),
    ),
    "a right is missing": (
        lambda c: c.refused.update({("watch", "nodes"), ("watch", "persistentvolumeclaims"), ("patch", "secrets")}),
        ("rights", "virt-admit-webhook has no right to watch nodes, persistentvolumeclaims"),
    ),
    "a right in a namespace that only some clusters have": (
        lambda c: (
            c.refused.add(("list", "leases")),
            c.objects.update({"/api/v1/namespaces/medik8s-leases": {"metadata": {}}}),
        ),
        ("rights", "virt-admit-webhook has no right to list leases"),
    ),
    "a bad policy": (
        lambda c: change("rules:\n  vm-runing: {action: deny}\n", c),
        ("policy", "the policy is not valid: policy.yaml:2: rules.vm-runing: there is no rule vm-runing"),
    ),
    "a webhook of others is away": (
        lambda c: add_hook(c, hook(["virtualmachines"])),
        (
            "other webhooks",
            "ValidatingWebhookConfiguration other: h.example.com rejects virtualmachines: other/hook has no",
        ),
    ),
    "a webhook for everything is away": (
        lambda c: add_hook(c, hook(["*/*"], "*", failurePolicy="Fail")),
        ("other webhooks", "h.example.com rejects nodes, "),
    ),
    "a webhook of pods is away": (
        lambda c: add_hook(c, hook(["pods"], "", failurePolicy="Fail")),
        ("other webhooks", "h.example.com rejects our own pods: other/hook has no ready endpoint"),
    ),
}


def serve_cert(cluster: Cluster, *chain: Any) -> None:
    cluster.objects[SECRET] = {"data": {"tls.crt": encoded(*chain)}}


@pytest.mark.parametrize("name", WRONG)
def test_each_fault_is_named(name):
    breaking, (topic, text) = WRONG[name]
    cluster = Cluster()
    breaking(cluster)
    found = cluster.diagnose()
    wrong = [each for each in found if each.status is Status.WRONG]
    assert any(each.topic == topic and text in each.text for each in wrong), wrong
    assert {each.topic for each in wrong} <= {topic, "registration"}
    assert exit_code(found) == 1


FINE = {
    "enforced with two replicas": lambda c: c.entries()[0].update(failurePolicy="Fail"),
    "more than we ask for": lambda c: c.entries()[0]["rules"].append(hook(["x"])["rules"][0]),
    "a signer more in the bundle": lambda c: c.entries()[0]["clientConfig"].update(
        caBundle=encoded(STRANGER.cert, SIGNER.cert)
    ),
    "a new signer, certified by the old one": lambda c: serve_cert(
        c,
        new_serving(STRANGER, SERVICE_NAMES, NOW, timedelta(hours=48)).cert,
        new_cross(STRANGER.cert, SIGNER, NOW),
    ),
    "a webhook of others that is there": lambda c: (
        add_hook(c, hook(["virtualmachines"])),
        c.objects.update({OTHERS: slices(True)}),
    ),
    "a webhook of others that fails open": lambda c: add_hook(c, hook(["virtualmachines"], failurePolicy="Ignore")),
    "a webhook of others for other kinds": lambda c: add_hook(c, hook(["deployments"], "apps")),
    "a webhook of others for pods elsewhere": lambda c: add_hook(
        c, hook(["pods"], "", namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}})
    ),
    "no right in a namespace that is not there": lambda c: c.refused.add(("list", "leases")),
    "no policy": lambda c: c.objects.pop(POLICY),
}


@pytest.mark.parametrize("name", FINE)
def test_a_sound_variant_has_no_findings(name):
    cluster = Cluster()
    FINE[name](cluster)
    assert unsound(cluster.diagnose()) == []


class TestAnotherIssuer:
    def test_its_secret_is_looked_at_and_the_rights_of_our_rotation_are_not_needed(self):
        cluster = Cluster()
        serve_external(cluster)
        cluster.objects[f"{NAMESPACE}/secrets/virt-admit-serving"] = cluster.objects.pop(SECRET)
        cluster.refused |= {("patch", "secrets"), ("patch", "validatingwebhookconfigurations")}
        assert unsound(cluster.diagnose()) == []

    @pytest.mark.parametrize(
        "flags", [["--certs-external", "/var/run/virt-admit"], ["--certs-external=/var/run/virt-admit"]]
    )
    def test_also_when_it_is_named_by_a_flag(self, flags):
        cluster = Cluster()
        serve_external(cluster)
        container = cluster.objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]
        container["env"] = []
        container["args"] += flags
        cluster.objects[f"{NAMESPACE}/secrets/virt-admit-serving"] = cluster.objects.pop(SECRET)
        assert unsound(cluster.diagnose()) == []


class TestByUrl:
    @staticmethod
    def cluster() -> Cluster:
        cluster = Cluster()
        for path in (VALIDATING, MUTATING):
            for entry in cluster.entries(path):
                entry["clientConfig"] = {"url": "https://laptop:1/x", "caBundle": encoded(SIGNER.cert)}
        for path in (NAMESPACE, SERVICE, DEPLOYMENT, POLICY, SLICES, SECRET):
            del cluster.objects[path]
        return cluster

    def test_the_url_is_connected_to_and_nothing_is_asked_of_the_cluster(self):
        asked = []
        found = self.cluster().diagnose(lambda url, bundle: asked.append((url, bundle)) or "")
        assert unsound(found) == []
        assert set(asked) == {("https://laptop:1/x", certs_pem([SIGNER.cert]).decode())}
        assert "rights" not in {each.topic for each in found}

    def test_a_failed_connection_is_wrong(self):
        found = self.cluster().diagnose(lambda url, bundle: "laptop:1: connection refused")
        ((topic, text),) = unsound(found)
        assert topic == "trust"
        assert text.endswith("laptop:1: connection refused")


class TestNotes:
    def test_another_version(self):
        cluster = Cluster()
        cluster.objects[DEPLOYMENT]["metadata"]["labels"]["app.kubernetes.io/version"] = "0.0.1"
        found = cluster.diagnose()
        assert unsound(found) == [
            ("versions", f"the cluster runs virt-admit 0.0.1, this command is {__version__}: their rules may differ")
        ]
        assert exit_code(found) == 0

    def test_requests_without_a_webhook_response(self):
        cluster = Cluster()
        cluster.objects["/metrics"] += "".join(
            f'apiserver_admission_webhook_fail_open_count{{name="{name}.virt-admit.io",type="validating"}} {number}\n'
            for name, number in (("nodes.validate", "2"), ("virtual-machines.mutate", "1e+01"))
        )
        ((topic, text),) = unsound(cluster.diagnose())
        assert topic == "failing open"
        assert (
            "let 12 requests pass without a webhook response since its start (nodes.validate, virtual-machines.mutate)"
            in text
        )

    def test_an_exemption_that_has_ended(self):
        cluster = Cluster()
        change(
            "exempt:\n  namespaces:\n  - {match: old, rules: ['*'], reason: moving, until: 2026-10-31}\n"
            "  - {match: new, rules: ['*'], reason: moving, until: 2026-11-01}\n",
            cluster,
        )
        assert unsound(cluster.diagnose()) == [("policy", "exemption for old expired on 2026-10-31: moving")]


class TestUnknown:
    @pytest.mark.parametrize(
        ("path", "topics"),
        [
            ("/version", {"versions"}),
            ("/metrics", {"failing open"}),
            (SECRET, {"trust"}),
            (POLICY, {"policy"}),
            (SLICES, {"endpoints"}),
            (REVIEW, {"rights"}),
            (VALIDATING, {"registration", "own namespace", "endpoints", "trust", "rights", "other webhooks"}),
        ],
    )
    def test_unreadable_data_is_neither_sound_nor_wrong(self, path, topics):
        cluster = Cluster()
        cluster.objects[path] = Unreadable("forbidden")
        found = cluster.diagnose()
        assert {each.topic for each in found if each.status is Status.UNKNOWN} == topics
        assert {each.text for each in found if each.topic in topics and each.status is not Status.OK} == {"forbidden"}
        assert exit_code(found) == 2

    def test_a_problem_outweighs_unknown_checks(self):
        cluster = Cluster()
        cluster.objects["/metrics"] = Unreadable("forbidden")
        cluster.objects.pop(SLICES)
        assert exit_code(cluster.diagnose()) == 1


class TestRights:
    def test_every_shipped_right_is_asked_for_in_the_name_of_the_webhook(self):
        cluster = Cluster()
        cluster.diagnose()
        asked = {
            (spec["group"], spec["resource"], spec["verb"], spec["namespace"], spec["name"])
            for spec in (body["spec"]["resourceAttributes"] for body in cluster.posted)
        }
        assert ("kubevirt.io", "virtualmachines", "watch", "", "") in asked
        assert ("", "secrets", "patch", "virt-admit", "virt-admit-certs") in asked
        assert ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "patch", "", "virt-admit") in asked
        assert {body["spec"]["user"] for body in cluster.posted} == {
            "system:serviceaccount:virt-admit:virt-admit-webhook"
        }
        assert {body["kind"] for body in cluster.posted} == {"SubjectAccessReview"}


class TestVerb:
    SOME = (
        Observation("trust", Status.OK, "trusted"),
        Observation("own namespace", Status.WRONG, "caught", "do this"),
        Observation("rights", Status.UNKNOWN, "forbidden"),
    )

    def test_text_names_each_observation_and_its_remedy(self):
        from click import unstyle

        assert unstyle(doctor.as_text(self.SOME)).splitlines() == [
            "ok       trust          trusted",
            "wrong    own namespace  caught",
            "                        do this",
            "unknown  rights         forbidden",
        ]

    @pytest.mark.parametrize(("code", "sound"), [(0, True), (1, False), (2, None)])
    def test_json_says_the_same(self, code, sound):
        data = json.loads(doctor.as_json(self.SOME, code))
        assert data["sound"] is sound
        assert data["observations"][1] == {
            "topic": "own namespace",
            "health": "wrong",
            "text": "caught",
            "remedy": "do this",
        }
        assert data["observations"][0]["remedy"] is None

    def test_without_a_cluster_there_is_an_error(self, tmp_path):
        run = CliRunner().invoke(doctor.command, ["--kubeconfig", str(tmp_path / "none")], standalone_mode=False)
        assert isinstance(run.exception, Exception)
        assert "no cluster is configured" in str(run.exception)
