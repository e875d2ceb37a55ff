"""A VM that holds a place for a migration, and seems to wait for one:
a live cluster is not read in one moment.
"""

from dataclasses import replace

from tools import example_cluster
from tools.example_vms import TIME
from virt_admit.forecasts.drain.drain_plan import plan as drain
from virt_admit.forecasts.drain.states import vm_states_outcomes
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.model.kubernetes.cluster import Snapshot


def test_a_vm_that_holds_the_place_it_waits_for_is_unknown(monkeypatch):
    cluster = Snapshot(example_cluster.objects(), ["*"], (), "v1.34.2", TIME)
    rows = (row for node in drain(cluster).nodes for row in node.forecasts)
    state = next(row.state for row in rows if row.vmi.name == "db")
    marked = replace(state, state=State.MARKED, holders=(("shop", "db"),), place=1, waiting=1)
    monkeypatch.setattr(vm_states_outcomes.vm_states, "of", lambda *_: marked)

    held = vm_states_outcomes._held(
        "shop", "db", Snapshot(example_cluster.objects(), ["*"], (), "v1.34.2", TIME)
    )

    assert (held.effect, held.reason) == (vm_states_outcomes.StateEffect.UNKNOWN, "shop/db")
