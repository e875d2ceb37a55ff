"""Where kube-scheduler would put a pod: the filters that decide,
over the nodes and pods of a cluster.

The modules follow kube-scheduler's own plugins (k8s.io/kubernetes pkg/scheduler/framework/plugins);
the tests hold them against the real program.
"""
