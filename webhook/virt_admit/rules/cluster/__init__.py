"""HyperConverged, KubeVirt, CDI, migration policies and storage profiles."""
