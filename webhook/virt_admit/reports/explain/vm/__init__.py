"""The report of ``virt-admit explain vm/NAME``."""
