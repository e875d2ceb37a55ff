"""Rules about limitrange."""
