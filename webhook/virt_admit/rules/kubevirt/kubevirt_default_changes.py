"""The update changes a default that this KubeVirt relies on, or skips a release.

**Why.** A setting that is absent follows the default of the release. Since 1.6 changes of a VM are
applied to the running guest, where earlier releases waited for a restart. Since 1.9 the features of
beta gates are on by default. KubeVirt supports updates from one minor release to the next alone.

**Fix.** Update to each minor release in turn. Set the field to the value that you want before the
upgrade. Add the gates of unwanted features to ``disabledFeatureGates``.
"""

from virt_admit.model import releases
from virt_admit.model.kubevirt.settings.feature_gates import kubevirt_gates
from virt_admit.model.kubevirt.settings.running_release import is_managed, running_release
from virt_admit.model.kubevirt.settings.versions import parse_version
from virt_admit.rule import KUBEVIRT, Action, Context, Finding, Findings, Object, names, rule


@rule(
    kinds=(KUBEVIRT,),
    action=Action.WARN,
    at_admission=False,
    target={releases.KUBEVIRT: "1.6"},
    sources=(
        "kubevirt/kubevirt:pkg/virt-config/virt-config.go#DefaultVMRolloutStrategy",
        "kubevirt/kubevirt:pkg/virt-config/featuregate/feature-gates.go#IsEnabled",
        "kubevirt/user-guide:docs/cluster_admin/updating_and_deletion.md",
    ),
)
def check(kubevirt: Object, context: Context) -> Findings:
    target = context.target.kubevirt
    if not target or is_managed(kubevirt):
        return
    yield from _skipped(kubevirt, target)
    running = running_release(kubevirt, target)
    before = releases.about(releases.KUBEVIRT, running)
    after = releases.about(releases.KUBEVIRT, target)
    for path, value in after["defaults"].items():
        old, field = before["defaults"].get(path, value), kubevirt.at(*path.split("."))
        if old != value and not field.present:
            remedy = f"Set {field.path[-1]}: {old} to keep it."
            yield Finding(
                field.path,
                f"KubeVirt {target} changes this default from {old} to {value}. {remedy}",
            )
    if after["beta_is_on"] and not before["beta_is_on"]:
        yield from _gates_that_turn_on(kubevirt, after["gates"], target)


def _skipped(kubevirt: Object, target: str) -> Findings:
    field = kubevirt.at("status", "observedKubeVirtVersion")
    running = parse_version(field.text)
    if running is None:
        return
    major, minor = releases.order(target)
    if running.major == major and running.minor + 1 < minor:
        yield Finding(
            field.path,
            f"an update from {running.major}.{running.minor} to {target} skips minor releases, "
            f"which KubeVirt does not support. Update to {major}.{running.minor + 1} first.",
            value=target,
        )


def _gates_that_turn_on(kubevirt: Object, gates: dict[str, str], target: str) -> Findings:
    named = {gate.name for gate in kubevirt_gates(kubevirt)}
    new = sorted(gate for gate, state in gates.items() if state == "Beta" and gate not in named)
    if not new:
        return
    settings = kubevirt.at("spec", "configuration", "developerConfiguration")
    path = settings["disabledFeatureGates"].path
    start = f"KubeVirt {target} turns on {len(new)} beta features"
    remedy = "Disable the unwanted ones."
    width = check.room(path) - len(f"{start}: . {remedy}")
    yield Finding(path, f"{start}: {names(new, width)}. {remedy}", value=", ".join(new))
