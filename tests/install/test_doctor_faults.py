"""The doctor names each thing that is broken."""

from __future__ import annotations

import base64
from datetime import timedelta

from tests.for_each import for_each
from tests.install.installation import (
    GUARDS,
    MUTATING,
    NOW,
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
    slices,
)
from virt_admit.install.doctor import exit_code
from virt_admit.install.observations import Status
from virt_admit.settings import SERVICE_NAMES
from virt_admit_certs.certificates import new_serving

WRONG = {
    "an old Kubernetes": (
        lambda c: c.objects.update({"/version": {"gitVersion": "v1.29.9"}}),
        ("versions", "Kubernetes 1.29.9 is older than 1.30"),
    ),
    "no validating configuration": (
        lambda c: c.objects[VALIDATING].update(items=[]),
        (
            "registration",
            "ValidatingWebhookConfiguration virt-admit does not exist: no object is judged",
        ),
    ),
    "no mutating configuration": (
        lambda c: c.objects.pop(MUTATING),
        (
            "registration",
            "MutatingWebhookConfiguration virt-admit does not exist: no object gets its defaults",
        ),
    ),
    "an entry is missing": (
        lambda c: c.entries().pop(),
        ("registration", "has no entry configuration.validate.virt-admit.io"),
    ),
    "a kind is not asked about": (
        lambda c: c.entries()[0]["rules"].pop(0),
        (
            "registration",
            (
                "virtual-machines.validate.virt-admit.io does not send CREATE of virtualmachines, "
                "UPDATE of"
            ),
        ),
    ),
    "a stolen token widened the rules": (
        lambda c: c.entries()[-1]["rules"][0].update(
            apiGroups=["*"], resources=["*/*"], operations=["*"]
        ),
        (
            "registration",
            "configuration.validate.virt-admit.io sends * of */*, which no rule judges",
        ),
    ),
    "a kind that no rule judges": (
        lambda c: c.entries()[0]["rules"].append(hook(["x"])["rules"][0]),
        (
            "registration",
            "virtual-machines.validate.virt-admit.io sends * of x, which no rule judges",
        ),
    ),
    "an entry that no release has": (
        lambda c: c.entries().append({**c.entries()[0], "name": "spy.validate.virt-admit.io"}),
        ("registration", "spy.validate.virt-admit.io sends CREATE of virtualmachine"),
    ),
    "nothing limits our account": (
        lambda c: c.objects.pop(GUARDS[0]),
        ("rights", "validatingadmissionpolicies virt-admit-configurations does not exist"),
    ),
    "the limit is not bound": (
        lambda c: c.objects.pop(GUARDS[1]),
        ("rights", "validatingadmissionpolicybindings virt-admit-configurations does not exist"),
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
        lambda c: c.entries()[4].pop("namespaceSelector"),
        (
            "own namespace",
            "machines.validate.virt-admit.io would send objects of our own namespace",
        ),
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
        lambda c: (
            c.objects.update({SLICES: slices(None, False)}),
            c.entries()[0].update(failurePolicy="Fail"),
        ),
        (
            "endpoints",
            "1 endpoint of Service virt-admit/virt-admit-webhook is ready: while it restarts",
        ),
    ),
    "no Secret": (
        lambda c: c.objects.pop(SECRET),
        ("trust", "Secret virt-admit/virt-admit-certs contains no certificate"),
    ),
    "an empty Secret": (
        lambda c: c.objects[SECRET].update(data={"tls.crt": ""}),
        ("trust", "contains no certificate"),
    ),
    "an expired certificate": (
        lambda c: serve_cert(
            c, new_serving(SIGNER, SERVICE_NAMES, NOW - timedelta(days=3), timedelta(days=2)).cert
        ),
        ("trust", "the certificate is valid from 2026-10-28 23:00 to 2026-10-31 00:00 UTC"),
    ),
    "a certificate that is not renewed": (
        lambda c: serve_cert(
            c,
            new_serving(SIGNER, SERVICE_NAMES, NOW - timedelta(hours=40), timedelta(hours=48)).cert,
        ),
        ("trust", "the certificate expires at 2026-11-01 08:00 UTC and was not renewed"),
    ),
    "another name": (
        lambda c: serve_cert(
            c, new_serving(SIGNER, ["w.other.svc"], NOW, timedelta(hours=48)).cert
        ),
        ("trust", "the certificate is for w.other.svc, not for virt-admit-webhook.virt-admit.svc"),
    ),
    "another CA": (
        lambda c: c.entries()[3]["clientConfig"].update(caBundle=encoded(STRANGER.cert)),
        (
            "trust",
            "health-checks.validate.virt-admit.io: caBundle does not trust the served certificate",
        ),
    ),
    "no bundle": (
        lambda c: c.entries()[3]["clientConfig"].pop("caBundle"),
        ("trust", "health-checks.validate.virt-admit.io: caBundle is empty"),
    ),
    "a bundle of garbage": (
        lambda c: c.entries()[3]["clientConfig"].update(
            caBundle=base64.b64encode(b"no PEM").decode()
        ),
        ("trust", "health-checks.validate.virt-admit.io: caBundle has no valid CA certificate"),
    ),
    "a right is missing": (
        lambda c: c.refused.update(
            {("watch", "nodes"), ("watch", "persistentvolumeclaims"), ("patch", "secrets")}
        ),
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
        (
            "policy",
            "the policy is not valid: policy.yaml:2: rules.vm-runing: there is no rule vm-runing",
        ),
    ),
    "a webhook of others is away": (
        lambda c: add_hook(c, hook(["virtualmachines"])),
        (
            "other webhooks",
            (
                "ValidatingWebhookConfiguration other: h.example.com rejects virtualmachines: "
                "other/hook has no"
            ),
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


@for_each("name", WRONG)
def test_each_fault_is_named(name):
    breaking, (topic, text) = WRONG[name]
    cluster = Cluster()
    breaking(cluster)
    found = cluster.diagnose()
    wrong = [each for each in found if each.status is Status.WRONG]
    assert any(each.topic == topic and text in each.text for each in wrong), wrong
    assert {each.topic for each in wrong} <= {topic, "registration"}
    assert exit_code(found) == 1
