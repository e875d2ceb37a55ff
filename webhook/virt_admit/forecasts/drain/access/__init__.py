"""What commands and kubelets need to reach each other during a drain: APIs, certificates."""
