"""A VM asks for a CPU model that the cluster calls obsolete.

**Why.** The node labeller takes obsolete models off all nodes. A VM with such a model cannot start, and one that
runs cannot migrate: its pod is never scheduled, so drains and upgrades hang. Only a node that the labeller skips
keeps its old labels, and then it is the only place for the VM.

**Fix.** Write ``host-model`` (the default without any model) or a model that nodes offer. If the model comes from an
instance type or from KubeVirt's ``cpuModel``, change it there.
"""

from collections.abc import Iterator

from webhook.model import configuration, cpu_models
from webhook.model.cluster import Unseen
from webhook.model.effective import effective
from webhook.model.kinds import HCO, POOL, VM, VMI, VMIRS
from webhook.model.objects import Object
from webhook.model.texts import count, names
from webhook.model.units import show
from webhook.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    cluster = context.cluster
    vmi = context.fact(effective, obj)
    model = cpu_models.named(vmi, cluster) if vmi.spec.is_map else None
    obsolete = configuration.obsolete_models(cluster)
    if model is None or model.name not in obsolete:
        return
    what = f"CPU model {show(model.name)}" + (f" of {model.source}" if model.source else "")
    certain, instead = False, "write host-model"
    try:
        offers = cpu_models.offers(cluster)
    except Unseen as unseen:
        offers = cpu_models.Offers({}, conclusive=False)
        yield unseen
    better = offers.most_common(3, without=obsolete)
    if better:
        instead += f" or one that nodes offer: {names(better, 60)}"
    if not offers.conclusive:
        message = f"{what} is obsolete: no node will offer it, so it cannot start or migrate; {instead}"
    elif offers.by(model.name):
        left = count(len(offers.by(model.name)), "node")
        message = f"{what} is obsolete, only {left} still offer it: {names(offers.by(model.name), 40)}; {instead}"
    else:
        certain = not model.source
        message = f"{what} is obsolete and no node offers it: it can never be scheduled; {instead}"
    yield Finding(
        model.path,
        message,
        value=model.name,
        cause=Cause.NOT_SUPPORTED,
        at_most=Action.DENY if certain else Action.WARN,
    )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VM, POOL, VMIRS, VMI),
    reads=(*cpu_models.READS, HCO),
    action=Action.DENY,
    check=check,
    sources=(
        "002_a4d22719b2fa2b5f.txt#11.5",
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/util/util.go#DefaultObsoleteCPUModels",
        "kubevirt/kubevirt:pkg/virt-controller/services/nodeselectorrenderer.go",
    ),
)
