"""Charts of Rancher and Harvester, which Fleet applies to the cluster."""
