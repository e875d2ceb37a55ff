"""A cause is told once in a report: later words refer to it, and lose nothing else."""

import pytest

from virt_admit.reports.explain.said_once import Said, once, without_remedy

WHY = (
    "LiveMigrate, but no other node can take it: node selector example.com/rack=north-4 (no node "
    "took its target pod: 0/3 nodes are available: 3 node(s) didn't match; given up at 10:04 UTC, "
    "then repeated)"
)
DRAIN = Said("as for a drain of its node", WHY)


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        (
            "no other node can take it: node selector example.com/rack=north-4",
            "as for a drain of its node",
        ),
        (
            (
                "migration m is under way: no node took its target pod: 0/3 nodes are available: 3 "
                "node(s) didn't match; given up at 10:04 UTC, then repeated"
            ),
            "migration m is under way: as for a drain of its node",
        ),
        (
            (
                "asked for, but no other node can take it: node selector example.com/rack=north-4; "
                "no node took its target pod: 0/3 nodes are available: 3 node(s) didn't match. It "
                "waits"
            ),
            "asked for, but as for a drain of its node. It waits",
        ),
        (
            "w2 takes no VM, as no other node can take it: node selector example.com/rack=north-4",
            "w2 takes no VM, as for a drain of its node",
        ),
        # a sentence that was cut is the same one
        (
            (
                "it fails: no node took its target pod: 0/3 nodes are available: 3 node(s) didn't… "
                "Free a node."
            ),
            "it fails: as for a drain of its node. Free a node.",
        ),
        # begins of other names, short clauses and other causes stay
        ("no other node can take it: node selector example.com/rack=north-40", None),
        ("no other node can take it: node selector example.com/rack=north", None),
        ("no node took its target pod", None),
        ("LimitRange small refuses every new pod of it: its limit is below its request", None),
        ("", None),
    ],
)
def test_once(text, shorter):
    assert once(text, (DRAIN,)) == (text if shorter is None else shorter)


def test_a_parenthesis_stays_whole():
    text = (
        "it fails (no node took its target pod: 0/3 nodes are available: 3 node(s) didn't match) "
        "and waits"
    )
    assert once(text, (DRAIN,)) == "it fails (as for a drain of its node) and waits"


@pytest.mark.parametrize("end", ["')\"", ")", '"]'])
def test_the_marks_at_the_end_of_a_quoted_error_go_with_it(end):
    error = (
        f"virt-handler cannot start it: command SyncVMI failed… no lock on [/var/…/disk.img]?{end}"
    )
    told = once(
        f"the VM should run: {error}. Stop it.", (Said("as for a drain of its node", error),)
    )
    assert told == "the VM should run: as for a drain of its node. Stop it."


def test_a_sentence_begins_with_a_capital():
    said = (
        Said(
            "see above", "The Job apply-of-node-7 failed 54 min ago because its deadline was over."
        ),
    )
    message = (
        "The node is cordoned. The Job apply-of-node-7 failed 54 min ago because its deadline was "
        "over."
    )
    assert once(message, said) == "The node is cordoned. See above."


def test_a_remedy_that_is_to_do_is_left_out():
    todo = (
        "raise ResourceQuota q to at least 4Gi, or free 2Gi: kubectl edit resourcequota q -n shop",
    )
    assert (
        without_remedy("It is refused. Raise ResourceQuota q to at least 4Gi.", todo)
        == "It is refused."
    )
    assert (
        without_remedy("It is refused. Raise ResourceQuota q2.", todo)
        == "It is refused. Raise ResourceQuota q2."
    )
    assert (
        without_remedy("Raise ResourceQuota q to at least 4Gi.", todo)
        == "Raise ResourceQuota q to at least 4Gi."
    )


def test_a_reference_in_parentheses_beside_itself_goes():
    what = "its kubelet reports, but the container runtime does not answer it"
    why = "PLEG is not healthy: it was last seen active 3 min ago; the threshold is 3 min"
    said = (Said("see above", what), Said("see above", why))
    assert once(f"not Ready: {what} ({why}). It waits", said) == "not Ready: see above. It waits"
