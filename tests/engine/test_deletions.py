"""Objects that are being deleted: no request of them is judged,
and a scan asks the rules about deletions alone.
"""

from tests.engine.test_engine import ask, make_rule, too_big, vm


def test_a_scan_asks_rules_about_deletions_alone():
    going = vm(4, deletionTimestamp="2026-01-01T00:00:00Z")
    about_deletions = make_rule(too_big, of_deleted=True, at_admission=False)
    assert len(ask(going, rules=[about_deletions]).verdicts) == 1
    at_admission = make_rule(too_big, of_deleted=True)
    assert ask(going, rules=[at_admission, make_rule(too_big, at_admission=False)]).verdicts == ()
