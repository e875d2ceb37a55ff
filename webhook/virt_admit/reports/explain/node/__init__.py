"""The report of ``virt-admit explain node/NAME``."""
