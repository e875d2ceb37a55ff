"""KubeVirt and Kubernetes would not go together after the upgrade.

**Why.** A release of KubeVirt is built for three releases of Kubernetes and tested with them alone.
With a newer one its API calls may be gone, and launcher pods may fail on what the kubelet changed;
with an older one it uses what is not there yet.

**Fix.** Update the one that lags behind first, by one minor release at a time.
"""

import re

from virt_admit.model import releases
from virt_admit.model.kubevirt.settings.versions import parse_version
from virt_admit.rule import KUBEVIRT, Action, Context, Finding, Findings, Object, rule

SUPPORTED = {
    "1.4": ("1.29", "1.31"),
    "1.5": ("1.30", "1.32"),
    "1.6": ("1.31", "1.33"),
    "1.7": ("1.32", "1.34"),
    "1.8": ("1.33", "1.35"),
    "1.9": ("1.34", "1.36"),
}
"""The first and the last release of Kubernetes that a release of KubeVirt supports."""
_MINOR = re.compile(r"v?(\d{1,3}\.\d{1,3})\b")


@rule(
    kinds=(KUBEVIRT,),
    action=Action.WARN,
    at_admission=False,
    target={releases.KUBEVIRT: "1.5", releases.KUBERNETES: "1.29"},
    sources=(
        "kubevirt/sig-release:releases/k8s-support-matrix.md",
        "kubevirt/kubevirt:docs/kubernetes-compatibility.md",
    ),
)
def check(kubevirt: Object, context: Context) -> Findings:
    field = kubevirt.at("status", "observedKubeVirtVersion")
    running = parse_version(field.text)
    release = context.target.kubevirt or (f"{running.major}.{running.minor}" if running else "")
    found = _MINOR.match(context.cluster.server_version or "")
    kubernetes = context.target.kubernetes or (found[1] if found else "")
    if release not in SUPPORTED or not kubernetes:
        return
    first, last = SUPPORTED[release]
    pair = f"KubeVirt {release} supports Kubernetes {first} to {last}, not {kubernetes}"
    if releases.order(kubernetes) < releases.order(first):
        yield Finding(field.path, f"{pair}. Update Kubernetes first.", value=kubernetes)
    elif releases.order(kubernetes) > releases.order(last):
        wanted = releases.order(kubernetes)
        fitting = (one for one, (_, most) in SUPPORTED.items() if releases.order(most) >= wanted)
        newer = next(fitting, "")
        remedy = f"Update KubeVirt to {newer} first" if newer else f"Stay at Kubernetes {last}"
        yield Finding(field.path, f"{pair}. {remedy}.", value=kubernetes)
