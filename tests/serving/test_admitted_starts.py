"""VMs of a burst count for each other before they are seen running: for a warning at most,
and for a minute.
"""

import pytest

from tests.forecasts.outage import losses
from virt_admit.engine import review
from virt_admit.engine.admission_review import Reply, Request
from virt_admit.forecasts.outage.recent_starts import recent_starts
from virt_admit.kube.cache import ClusterCache
from virt_admit.kube.stores import lookup_stores
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import POOL, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy import parser
from virt_admit.rule import Action
from virt_admit.rules import load_rules
from virt_admit.serving.admitted_starts import MOST, RULE, AdmittedStarts

RULES = load_rules().at_admission
POLICY = parser.parse(
    f"extends: default\nrules: {{{RULE}: {{action: deny}}}}".encode(), load_rules()
)


def nodes():
    for name in ("n1", "n2", "n3"):
        node = losses.node(name)
        node["status"]["allocatable"]["ephemeral-storage"] = "100Gi"
        yield node


WORLD = [
    *losses.NAMESPACES,
    losses.KUBEVIRT,
    *nodes(),
    *losses.vm("web", "n1", "40Gi"),
    *(losses.filler(name, "40Gi") for name in ("n2", "n3")),
]
"""8Gi can start before the loss of n1 leaves VMs without room."""


def template(memory, strategy="Always"):
    domain = {"memory": {"guest": memory}, "devices": {}}
    return {"runStrategy": strategy, "template": {"metadata": {}, "spec": {"domain": domain}}}


def machine(name, memory, strategy="Always"):
    return Object(
        losses.manifest(
            "kubevirt.io/v1", "VirtualMachine", name, "shop", spec=template(memory, strategy)
        )
    )


def pool(replicas, memory):
    spec = {"replicas": replicas, "virtualMachineTemplate": {"spec": template(memory)}}
    return Object(
        losses.manifest("pool.kubevirt.io/v1beta1", "VirtualMachinePool", "ci", "shop", spec=spec)
    )


class Webhook:
    """Reviews with a clock of its own."""

    def __init__(self):
        self.now = 1000.0
        self.starts = AdmittedStarts(lambda: self.now)
        self.more = []

    def ask(self, name, memory, *, operation="CREATE", dry_run=False, strategy="Always", old=None):
        obj = machine(name, memory, strategy)
        new, old = (None, obj) if operation == "DELETE" else (obj, old)
        return self.review(
            Request(
                operation, VM, new, old, name=name, namespace="shop", user="jane", dry_run=dry_run
            )
        )

    def review(self, request):
        cluster = Snapshot(map(Object, [*WORLD, *self.more]), ["*"])
        cluster.provide(recent_starts, self.starts.current())
        response = review.review(request, RULES, cluster, POLICY)
        self.starts.observe(Reply(b"", request, response), cluster)
        return next(
            (verdict.action for verdict in response.verdicts if verdict.rule.id == RULE), None
        )


def test_the_second_vm_of_a_burst_is_warned_about_and_never_refused():
    webhook = Webhook()
    assert webhook.ask("a", "5Gi") is None
    assert webhook.ask("b", "5Gi") is Action.WARN
    assert webhook.ask("c", "16Gi") is Action.DENY, "this one is too large alone"


def test_the_same_vm_counts_once():
    webhook = Webhook()
    assert webhook.ask("a", "5Gi") is None
    assert webhook.ask("a", "5Gi") is None


def test_a_dry_run_is_not_remembered():
    webhook = Webhook()
    assert webhook.ask("a", "5Gi", dry_run=True) is None
    assert webhook.ask("b", "5Gi") is None
    assert webhook.ask("c", "5Gi", dry_run=True) is Action.WARN


@pytest.mark.parametrize(("seconds", "action"), [(59, Action.WARN), (61, None)])
def test_it_is_forgotten_after_a_minute(seconds, action):
    webhook = Webhook()
    webhook.ask("a", "5Gi")
    webhook.now += seconds
    assert webhook.ask("b", "5Gi") is action


def test_a_vm_that_is_seen_running_counts_once():
    webhook = Webhook()
    webhook.ask("a", "2Gi")
    webhook.more = losses.vm("a", "n2", "2Gi")
    assert webhook.ask("b", "5Gi") is None
    assert len(webhook.starts.current()) == 2


@pytest.mark.parametrize("memory", ["16Gi", "5Gi"])
def test_refused_halted_and_deleted_vms_ask_for_nothing(memory):
    webhook = Webhook()
    webhook.ask("a", memory, strategy="Halted")
    assert webhook.starts.current() == ()
    webhook.ask("a", memory)
    assert len(webhook.starts.current()) == (memory == "5Gi")
    webhook.ask("a", memory, operation="DELETE")
    assert webhook.starts.current() == ()


def test_a_vmi_without_a_pod_still_counts():
    webhook = Webhook()
    webhook.ask("a", "5Gi")
    vmi, *_ = losses.vm("a", "", "5Gi")
    webhook.more = [{**vmi, "status": {"phase": "Pending"}}]
    assert webhook.ask("b", "5Gi") is Action.WARN


def test_a_vm_that_is_changed_before_it_runs_counts_in_its_last_size():
    webhook = Webhook()
    webhook.ask("a", "1Gi")
    webhook.ask("a", "5Gi", operation="UPDATE", old=machine("a", "1Gi"))
    assert webhook.ask("b", "5Gi", dry_run=True) is Action.WARN
    webhook.ask("a", "1Gi", operation="UPDATE", old=machine("a", "5Gi"))
    assert webhook.ask("b", "5Gi", dry_run=True) is None
    webhook.ask("a", "1Gi", operation="UPDATE", strategy="Halted", old=machine("a", "1Gi"))
    assert webhook.starts.current() == ()


def test_a_vm_that_is_turned_on_while_its_last_vmi_ends_counts():
    webhook = Webhook()
    vmi, *_ = losses.vm("a", "", "5Gi")
    webhook.more = [{**vmi, "status": {"phase": "Pending"}}]
    webhook.ask("a", "5Gi", operation="UPDATE", old=machine("a", "5Gi", "Halted"))
    assert webhook.ask("b", "5Gi") is Action.WARN


def test_growing_before_it_runs_counts_on_top_of_what_was_admitted():
    webhook = Webhook()
    webhook.ask("a", "5Gi")
    assert webhook.ask("a", "9Gi", operation="UPDATE", old=machine("a", "5Gi")) is Action.WARN


def test_a_running_vm_that_grows_counts_until_its_larger_pod_exists():
    webhook = Webhook()
    webhook.more = losses.vm("a", "n2", "1Gi")
    assert webhook.ask("a", "4Gi", operation="UPDATE", old=machine("a", "1Gi")) is None
    assert webhook.ask("b", "5Gi", dry_run=True) is Action.WARN
    webhook.more = losses.vm("a", "n3", "2Gi")
    assert webhook.ask("b", "5Gi", dry_run=True) is None


def test_the_vms_of_a_pool_count_until_their_pods_exist():
    webhook = Webhook()
    request = Request(
        "CREATE", POOL, pool(2, "2Gi"), None, name="ci", namespace="shop", user="jane"
    )
    assert webhook.review(request) is None
    assert webhook.ask("b", "5Gi", dry_run=True) is Action.WARN
    webhook.more = [*losses.vm("ci-0", "n2", "1Gi")]
    assert webhook.ask("b", "4Gi", dry_run=True) is None, "one of two is left"
    assert webhook.ask("b", "5Gi", dry_run=True) is Action.WARN
    webhook.more += losses.vm("ci-1", "n2", "1Gi")
    assert webhook.ask("b", "5Gi", dry_run=True) is None


def test_edits_that_ask_for_nothing_do_not_prolong_the_minute():
    webhook = Webhook()
    webhook.ask("a", "5Gi")
    webhook.now += 50
    webhook.ask("a", "5Gi", operation="UPDATE", old=machine("a", "5Gi"))
    webhook.now += 15
    assert webhook.ask("b", "5Gi") is None


def test_the_list_is_bounded():
    webhook = Webhook()
    for number in range(MOST + 5):
        webhook.ask(f"vm-{number}", "64Mi")
    assert len(webhook.starts.current()) == MOST


def test_live_informers_see_each_start_at_once():
    starts, cluster = [], ClusterCache(lookup_stores(RULES))
    cluster.provide(recent_starts, lambda: tuple(starts), ())
    assert cluster.cached(recent_starts) == ()
    starts.append("a")
    assert cluster.cached(recent_starts) == ("a",)
    assert kinds.VM in cluster.stores
