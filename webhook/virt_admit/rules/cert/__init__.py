"""Certificate rotation settings of HyperConverged, KubeVirt and CDI."""
