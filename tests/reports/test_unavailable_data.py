"""What a report could not determine, in words."""

from virt_admit.reports.unavailable_data import not_available


def test_what_cannot_be_determined_is_a_list_of_clauses():
    facts = [f"its condition {number} has not been True for 40 h 50" for number in range(7)]
    assert list(not_available(facts[:2])) == [f"Cannot be determined: {facts[0]}; {facts[1]}."]
    assert next(not_available(facts)).endswith(f"{facts[4]}; and 2 more facts.")
