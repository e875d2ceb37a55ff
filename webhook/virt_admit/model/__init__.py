"""Facts: what Kubernetes objects are and where their APIs keep things. Pure; knows nothing of rules."""
