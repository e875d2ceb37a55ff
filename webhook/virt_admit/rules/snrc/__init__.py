"""Self Node Remediation: the configuration of its agents."""
