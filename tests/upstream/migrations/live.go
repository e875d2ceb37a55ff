package main

import (
	"context"
	"fmt"

	k8sv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"kubevirt.io/client-go/kubevirt"
	networkfake "kubevirt.io/client-go/networkattachmentdefinitionclient/fake"
)

// queries per second that no run reaches: the pace of a client must not be part of what is measured.
const queries = 1000

// liveClient talks to an API server. Several clusters share it: each has a namespace, and nodes that a label selects.
func liveClient(kubeconfig, nodes string) (*client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = queries, queries
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	virt, err := kubevirt.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &client{core: core, virt: virt, networks: networkfake.NewSimpleClientset(), nodes: nodes, live: true}, nil
}

// untaint removes the taint that the API server gives to each new node.
func (w *world) untaint(node *k8sv1.Node) error {
	if len(node.Spec.Taints) == 0 {
		return nil
	}
	patch := []byte(`{"spec": {"taints": null}}`)
	_, err := w.CoreV1().Nodes().Patch(context.Background(), node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// leave deletes what kube-scheduler would go on looking at. The other objects have the namespace for themselves.
func (w *world) leave() error {
	ctx := context.Background()
	if err := w.CoreV1().Pods(w.given.Namespace).DeleteCollection(ctx, atOnce, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("deleting the pods: %w", err)
	}
	return w.CoreV1().Nodes().DeleteCollection(ctx, atOnce, metav1.ListOptions{LabelSelector: w.nodes})
}
