"""What keeps an operator that an upgrade waits for from being done."""
