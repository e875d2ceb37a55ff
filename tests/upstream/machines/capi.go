package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine/drain"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// retry is the period in which the Machine controller drains an unreachable node again, with the settings below
// (core/reconcilers/machine/machine_controller.go#drainNode). That method is private.
const retry = 20 * time.Second

// capi returns when the drain of Cluster API has ended.
func capi(n *node) *float64 {
	ctx := context.Background()
	remote := remoteClient{node: n}
	helper := &drain.Helper{
		Client: remote, RemoteClient: remote, GracePeriodSeconds: 1, SkipWaitForDeleteTimeoutSeconds: 1,
	}
	cluster, machine := &clusterv1.Cluster{}, &clusterv1.Machine{}
	for !n.ended() {
		if err := helper.CordonNode(ctx, n.object()); err != nil {
			panic(err)
		}
		list, err := helper.GetPodsForEviction(ctx, cluster, machine, nodeName)
		if err != nil {
			panic(err)
		}
		if len(list.Pods()) == 0 || helper.EvictPods(ctx, list).DrainCompleted() {
			at := n.since()
			return &at
		}
		time.Sleep(retry)
	}
	return nil
}

// remoteClient answers what the drain asks for.
type remoteClient struct {
	client.Client
	node *node
}

func (c remoteClient) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.PodList:
		list.Items = c.node.pods()
	case *corev1.NamespaceList:
		list.Items = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: namespace}}}
	case *clusterv1.MachineDrainRuleList:
	default:
		return fmt.Errorf("a list of %T", list)
	}
	return nil
}

func (c remoteClient) Patch(_ context.Context, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
	c.node.cordon()
	return nil
}

func (c remoteClient) SubResource(string) client.SubResourceClient { return evictions{node: c.node} }

type evictions struct {
	client.SubResourceClient
	node *node
}

func (e evictions) Create(_ context.Context, pod, made client.Object, _ ...client.SubResourceCreateOption) error {
	return e.node.evict(pod.GetName(), *made.(*policyv1.Eviction).DeleteOptions.GracePeriodSeconds)
}
