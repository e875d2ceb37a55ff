"""The doctor: a sound cluster is called sound, and what it cannot read is neither."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.install.installation import (
    DEPLOYMENT,
    MUTATING,
    NAMESPACE,
    NOW,
    OTHERS,
    POLICY,
    REVIEW,
    SECRET,
    SERVICE,
    SIGNER,
    SLICES,
    STRANGER,
    VALIDATING,
    Cluster,
    add_hook,
    change,
    encoded,
    hook,
    serve_cert,
    serve_external,
    slices,
    unsound,
)
from virt_admit import __version__
from virt_admit.install.doctor import exit_code
from virt_admit.install.inspect import Unreadable
from virt_admit.install.observations import Status
from virt_admit.settings import SERVICE_NAMES
from virt_admit_certs.certificates import certs_pem, new_cross, new_serving


def test_a_sound_cluster_is_sound():
    found = Cluster().diagnose()
    assert unsound(found) == []
    assert exit_code(found) == 0
    assert [each.topic for each in found] == [
        *(
            "versions",
            "rights",
            "endpoints",
            "registration",
            "own namespace",
            "trust",
            "trust",
            "policy",
        ),
        *("other webhooks", "failing open"),
    ]


FINE = {
    "enforced with two replicas": lambda c: c.entries()[0].update(failurePolicy="Fail"),
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
    "a webhook of others that fails open": lambda c: add_hook(
        c, hook(["virtualmachines"], failurePolicy="Ignore")
    ),
    "a webhook of others for other kinds": lambda c: add_hook(c, hook(["deployments"], "apps")),
    "a webhook of others for pods elsewhere": lambda c: add_hook(
        c,
        hook(
            ["pods"],
            "",
            namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}},
        ),
    ),
    "no right in a namespace that is not there": lambda c: c.refused.add(("list", "leases")),
    "no policy": lambda c: c.objects.pop(POLICY),
}


@pytest.mark.parametrize("name", FINE)
def test_a_sound_variant_has_no_findings(name):
    cluster = Cluster()
    FINE[name](cluster)
    assert unsound(cluster.diagnose()) == []


class TestBeforeInstallation:
    """What does not exist yet is not called ok, and the first remedy is the first step."""

    def test_nothing_is_installed(self):
        cluster = Cluster()
        cluster.objects |= {VALIDATING: {"items": []}, MUTATING: {"items": []}}
        for path in (NAMESPACE, SERVICE, DEPLOYMENT, POLICY, SLICES, SECRET):
            del cluster.objects[path]
        found = cluster.diagnose()
        assert [(each.topic, each.status) for each in found] == [
            ("versions", Status.OK),
            ("installation", Status.WRONG),
            ("other webhooks", Status.OK),
        ]
        steps = found[1].remedy
        assert (
            0
            < steps.index("-k ours;")
            < steps.index("rollout status")
            < steps.index("-k ours/webhooks")
        )
        assert exit_code(found) == 1

    def test_the_deployment_exists_and_has_no_ready_pod(self):
        cluster = Cluster()
        cluster.objects |= {
            VALIDATING: {"items": []},
            MUTATING: {"items": []},
            SLICES: slices(False),
        }
        found = cluster.diagnose()
        assert [(each.topic, each.status) for each in found if each.topic != "versions"] == [
            ("installation", Status.NOTE),
            ("rights", Status.OK),
            ("endpoints", Status.WRONG),
            ("registration", Status.WRONG),
            ("registration", Status.WRONG),
            ("trust", Status.OK),
            ("policy", Status.OK),
            ("other webhooks", Status.OK),
            ("failing open", Status.OK),
        ]

    def test_a_cluster_that_does_not_answer_is_not_called_empty(self):
        cluster = Cluster()
        cluster.objects |= {VALIDATING: Unreadable("forbidden"), MUTATING: Unreadable("forbidden")}
        found = cluster.diagnose()
        assert "not installed" not in str(found)
        assert exit_code(found) == 2


class TestAnotherIssuer:
    def test_its_secret_is_looked_at_and_the_rights_of_our_rotation_are_not_needed(self):
        cluster = Cluster()
        serve_external(cluster)
        cluster.objects[f"{NAMESPACE}/secrets/virt-admit-serving"] = cluster.objects.pop(SECRET)
        cluster.refused |= {("patch", "secrets"), ("patch", "validatingwebhookconfigurations")}
        assert unsound(cluster.diagnose()) == []

    @pytest.mark.parametrize(
        "flags",
        [["--certs-external", "/var/run/virt-admit"], ["--certs-external=/var/run/virt-admit"]],
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
                entry["clientConfig"] = {
                    "url": "https://laptop:1/x",
                    "caBundle": encoded(SIGNER.cert),
                }
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


class TestImpact:
    """``Fail`` without an answer: what API servers reject now comes first, with the way out."""

    EXIT = (
        "admit these requests again: kubectl delete "
        "validatingwebhookconfiguration,mutatingwebhookconfiguration virt-admit"
    )

    def enforced(self) -> Cluster:
        cluster = Cluster()
        cluster.entries()[0]["failurePolicy"] = "Fail"
        assert cluster.entries()[0]["name"] == "virtual-machines.validate.virt-admit.io"
        return cluster

    @pytest.mark.parametrize(
        ("break_it", "why"),
        [
            (
                lambda c: c.objects.update({SLICES: slices()}),
                "Service virt-admit/virt-admit-webhook has no ready endpoint",
            ),
            (lambda c: c.objects.update({SLICES: slices(False, False)}), "has no ready endpoint"),
            (
                lambda c: c.objects.pop(SERVICE),
                "Service virt-admit/virt-admit-webhook does not exist",
            ),
            (lambda c: c.entries()[0]["clientConfig"].pop("caBundle"), "its caBundle is empty"),
        ],
        ids=["no endpoint", "none ready", "no Service", "no caBundle"],
    )
    def test_it_leads_with_the_impact_and_the_emergency_exit(self, break_it, why):
        cluster = self.enforced()
        break_it(cluster)
        first = cluster.diagnose()[0]
        assert (first.topic, first.status) == ("impact", Status.WRONG)
        assert first.text.startswith(
            "VMs cannot be created or changed now: virtual-machines.validate.virt-admit.io has "
        )
        assert first.text.endswith(why)
        assert first.remedy == self.EXIT

    def test_nothing_is_rejected_under_ignore_or_while_the_webhook_answers(self):
        cluster = Cluster()
        cluster.objects[SLICES] = slices()
        assert "impact" not in {found.topic for found in cluster.diagnose()}
        assert "impact" not in {found.topic for found in self.enforced().diagnose()}

    def test_what_cannot_be_read_is_not_called_an_impact(self):
        cluster = self.enforced()
        cluster.objects[SLICES] = Unreadable("forbidden")
        assert "impact" not in {found.topic for found in cluster.diagnose()}


class TestNotes:
    def test_another_version(self):
        cluster = Cluster()
        cluster.objects[DEPLOYMENT]["metadata"]["labels"]["app.kubernetes.io/version"] = "0.0.1"
        found = cluster.diagnose()
        assert unsound(found) == [
            (
                "versions",
                (
                    f"the cluster runs virt-admit 0.0.1, this command is {__version__}: their "
                    "rules may differ"
                ),
            )
        ]
        assert exit_code(found) == 0

    def test_requests_without_a_webhook_response(self):
        cluster = Cluster()
        cluster.objects["/metrics"] += "".join(
            (
                f'apiserver_admission_webhook_fail_open_count{{name="{name}.virt-admit.io",type='
                f'"validating"}} {number}\n'
            )
            for name, number in (("nodes.validate", "2"), ("virtual-machines.mutate", "1e+01"))
        )
        ((topic, text),) = unsound(cluster.diagnose())
        assert topic == "failing open"
        assert (
            "let 12 requests pass without a webhook response since its start (nodes.validate, "
            "virtual-machines.mutate)"
        ) in text

    def test_an_exemption_that_has_ended(self):
        cluster = Cluster()
        change(
            "exempt:\n  namespaces:\n  - {match: old, rules: ['*'], reason: moving, until: "
            "2026-10-31}\n  - {match: new, rules: ['*'], reason: moving, until: 2026-11-01}\n",
            cluster,
        )
        assert unsound(cluster.diagnose()) == [
            ("policy", "exemption for old expired on 2026-10-31: moving")
        ]


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
            (
                VALIDATING,
                {
                    "installation",
                    "registration",
                    "own namespace",
                    "endpoints",
                    "trust",
                    "rights",
                    "other webhooks",
                },
            ),
        ],
    )
    def test_unreadable_data_is_neither_sound_nor_wrong(self, path, topics):
        cluster = Cluster()
        cluster.objects[path] = Unreadable("forbidden")
        found = cluster.diagnose()
        assert {each.topic for each in found if each.status is Status.UNKNOWN} == topics
        assert {
            each.text for each in found if each.topic in topics and each.status is not Status.OK
        } == {"forbidden"}
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
        assert (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            "patch",
            "",
            "virt-admit",
        ) in asked
        assert {body["spec"]["user"] for body in cluster.posted} == {
            "system:serviceaccount:virt-admit:virt-admit-webhook"
        }
        assert {body["kind"] for body in cluster.posted} == {"SubjectAccessReview"}
