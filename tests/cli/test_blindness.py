"""What was not read never turns a no or an unknown into a yes, nor a yes into a no: ``drain``,
``upgrade``, ``explain``, ``outage``.

More clusters, and each kind of each incident: ``make verify-random``.
"""

import itertools
import os
from random import Random

import pytest

from tests import blindness, random_vms
from tests.incidents.test_virtual_machines import INCIDENTS
from tests.incidents_platform.test_incidents import INCIDENTS as PLATFORM_INCIDENTS
from tests.random_motion import moving_cluster
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.vm_events import EventEffect
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.drain.workload_updates import Reach
from virt_admit.forecasts.outage.explanation import KINDS, explain
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubevirt.instances import vm_lookup
from virt_admit.reports.explain.judged_rules import Opinion
from virt_admit.reports.explain.node import collect as explain_node
from virt_admit.reports.explain.vm import collect as explain_vm
from virt_admit.rules import load_rules

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("BLINDNESS_SEEDS", "4"))
TURNS = int(os.environ.get("BLINDNESS_TURNS", "3"))
"""Of so many kinds of an incident one is hidden, others in the next incident; 1 hides each."""
GROUPS = 4
NO_RULES = Opinion(load_rules(), None)
EVENT_VERDICTS = {
    VmOutcome.BLOCKS: False,
    VmOutcome.MIGRATES: True,
    Reach.MIGRATED: True,
    Reach.RETRIED: False,
    Reach.NEVER: False,
    EventEffect.RESTARTED: True,
    LossOutcome.RESTARTS: True,
    LossOutcome.NEVER: False,
    LossOutcome.LOST: False,
    EventEffect.OFF: False,
    EventEffect.STARTS: True,
    EventEffect.REFUSED: False,
    EventEffect.FAILS: False,
}
VM_VERDICTS = {VmOutcome.BLOCKS: False, VmOutcome.MIGRATES: True}


def verdicts(cluster):
    """Every answer by what was asked: True, False, or None where it cannot be determined."""
    return {
        **drained(cluster),
        **upgraded(cluster),
        **explained(cluster),
        **explained_objects(cluster),
        **lost(cluster),
    }


def drained(cluster, *nodes):
    whole = plan(cluster, *nodes)
    found = {("drain",): whole.drainable}
    for node in whole.nodes:
        found["drain", node.name] = node.drainable
        found["fits", node.name] = node.packing.fits
        for row in node.forecasts:
            found["drain", node.name, row.vmi.full_name] = VM_VERDICTS.get(row.outcome)
    return found


def upgraded(cluster):
    found = {}
    for driver in (None, *Driver):
        found["upgrade", driver] = rehearse(cluster, Options(driver), forecast_only=True).possible
    return found


def lost(cluster):
    """Whether the cluster survives the loss of each node and of two nodes,
    and whether there is room then.
    """
    found = {}
    names = [node.name for node in cluster.known(kinds.NODE)]
    for nodes in (*((name,) for name in names), *list(itertools.combinations(names, 2))[:3]):
        (one,) = outages(Question(nodes=nodes), cluster).outages
        found["outage", nodes] = one.survives
        found["outage fits", nodes] = one.room.fits
    return found


def explained(cluster):
    found = {}
    for kind in KINDS:
        for check in cluster.known(kind):
            said = explain(check, cluster)
            found["explain", check.full_name, "acts"] = (
                False if said.obstacles else None if said.unseen else True
            )
            found["explain", check.full_name, "ends"] = (
                False if said.timeline.never else None if said.unseen else True
            )
            for fate in said.fates:
                found["explain", check.full_name, fate.vmi.full_name] = fate.comes
    return found


def explained_objects(cluster):
    """What ``explain`` says of each VM and each node: outcomes that are certain, True or False."""
    found = {}
    for obj in (*cluster.known(kinds.VM), *cluster.known(kinds.VMI)):
        said = explain_vm.report(
            vm_lookup.find(obj.name, obj.namespace, cluster), cluster, NO_RULES
        )
        for event in said.events:
            found["explain", said.vm.name, str(event.event)] = EVENT_VERDICTS.get(event.outcome)
        found["explain", said.vm.name, "migratable"] = said.migratable
        found["explain", said.vm.name, "upgrade"] = said.upgrade.possible
        found["explain", said.vm.name, "waits"] = said.queue.waits if said.queue else None
    for node in cluster.known(kinds.NODE):
        said = explain_node.report(node.name, cluster, NO_RULES).report
        found["explain", node.name, "drainable"] = said.drain.drainable
        for vm in said.outage.vms:
            found["explain", node.name, "loss", vm.name] = EVENT_VERDICTS.get(vm.outcome)
    return found


def contradictions(whole, hidden):
    """The answers that must not be given when less is known."""
    for asked, answer in whole.items():
        less = hidden.get(asked)
        if (less is True and answer is not True) or (less is False and answer is True):
            yield asked, answer, less


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_is_hidden_never_turns_an_answer(group):
    wrong = []
    for seed in range(group, SEEDS, GROUPS):
        objects = random_vms.random_cluster(seed)
        whole = verdicts(blindness.everything(objects))
        for hidden in blindness.hidings(objects, Random(seed)):
            found = contradictions(whole, verdicts(hidden.cluster))
            wrong += [
                (
                    f"seed {seed} without {hidden.what}: {' '.join(map(str, asked))}: {answer} "
                    f"became {less}"
                )
                for asked, answer, less in found
            ]

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_field_that_is_missing_gives_no_yes(group):
    """Its controller always sets it. ``fits`` counts only VMs that need room."""
    wrong = []
    for seed in range(group, SEEDS, GROUPS):
        for made in (random_vms.random_cluster, moving_cluster):
            objects = made(seed)
            whole = answers(blindness.everything(objects))
            for hidden in without_status_fields(objects):
                found = answers(hidden.cluster)
                wrong += [
                    f"seed {seed} without {hidden.what}: {' '.join(map(str, asked))}: no, then yes"
                    for asked, answer in whole.items()
                    if answer is False and found.get(asked) is True and len(asked) <= MOST_ASKED
                ]
    assert not wrong, "\n".join(wrong)


MOST_ASKED = 2
"""Words of a question about a node or the cluster, and not about a VM,
whose word counts with its node's.
"""


def without_status_fields(objects):
    """The cluster without each field of the status of each kind.

    A migration without a phase has just been made, and a Node without conditions counts as one that
    reports.
    """
    found = {(each["kind"], field) for each in objects for field in each.get("status", {})}
    for kind, field in sorted(
        found - {("VirtualMachineInstanceMigration", "phase"), ("Node", "conditions")}
    ):
        yield blindness.without_field(
            objects,
            f"{kind} status.{field}",
            lambda each, field=field: each["status"].pop(field, None),
        )


def answers(cluster):
    found = drained(cluster) | upgraded(cluster) | lost(cluster)
    return {asked: answer for asked, answer in found.items() if "fits" not in asked[0]}


def places(cluster):
    """The nodes that certainly accept each VM, and those that certainly refuse it, alone."""
    for vmi in cluster.known(kinds.VMI):
        for moves in (True, False):
            placement = candidates.target(vmi, cluster, moves=moves).placement
            yield (vmi.full_name, moves), (set(placement.candidates), set(placement.refusals))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_hidden_opens_and_closes_no_node(seed):
    objects = random_vms.random_cluster(seed)
    whole = dict(places(blindness.everything(objects)))
    for hidden in blindness.hidings(objects, Random(seed)):
        for asked, (accepting, refusing) in places(hidden.cluster):
            assert accepting <= whole[asked][0], (hidden.what, asked)
            assert not refusing & whole[asked][0], (hidden.what, asked)


@pytest.mark.parametrize("seed", [12, 45])
def test_clusters_in_which_outage_once_said_what_it_could_not_know(seed):
    """The size of VMs without KubeVirt's settings,
    and pods that keep each other off by the labels of namespaces.
    """
    objects = random_vms.random_cluster(seed)
    whole = lost(blindness.everything(objects))
    for hidden in blindness.hidings(objects, Random(seed)):
        assert list(contradictions(whole, lost(hidden.cluster))) == [], hidden.what


def test_what_is_hidden_of_a_cluster_in_motion_never_turns_an_answer():
    """Dead nodes, running migrations, degraded KubeVirt, operators' budgets.

    The word of a VM counts with its node's.
    """
    wrong = []
    for seed in range(2 * SEEDS):
        objects = moving_cluster(seed)
        whole = drained(blindness.everything(objects))
        for hidden in blindness.hidings(objects, Random(seed)):
            said = drained(hidden.cluster)
            wrong += [
                f"seed {seed} without {hidden.what}: {' '.join(asked)}: {answer} became {less}"
                for asked, answer, less in contradictions(whole, said)
                if asked[0] == "drain" and (less is False or said[asked[:2]] is True)
            ]
    assert not wrong, "\n".join(wrong)


NAMING_NODES = (kinds.NODE, kinds.VMI)
CLUSTERS = [
    *((incident.url, incident.snapshot()) for incident in INCIDENTS),
    *((incident.source, incident.snapshot) for incident in PLATFORM_INCIDENTS),
]


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_is_hidden_of_an_incident_gives_no_yes(group):
    """Webhooks, operators and their settings, which random clusters do not have.

    The word of a VM counts with its node's.

    Nodes with nothing but yes are not asked again, unless what is hidden says which nodes there
    are.
    """
    wrong = []
    for number, (source, cluster) in enumerate(CLUSTERS[group::GROUPS]):
        objects, time = cluster["items"], cluster.get("time")
        whole = drained(blindness.everything(objects, time))
        open_answers = {
            asked: it for asked, it in whole.items() if asked[0] == "drain" and it is not True
        }
        nodes = {asked[1] for asked in open_answers if len(asked) > 1}
        kinds_in_turn = blindness.kinds_of(objects)[number % TURNS :: TURNS]
        for kind in kinds_in_turn if open_answers else ():
            hidden = blindness.without_kind(objects, kind, time)
            found = drained(hidden.cluster, *(() if kind in NAMING_NODES else nodes))
            wrong += [
                f"{source} without {hidden.what}: {' '.join(asked)}: {answer}, then yes"
                for asked, answer in open_answers.items()
                if found.get(asked) is found.get(asked[:2]) is True
            ]
    assert not wrong, "\n".join(wrong)
