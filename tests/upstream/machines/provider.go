package main

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// counted is a client that counts what is written with it: a controller looks again after that.
func (w *world) counted(all client.WithWatch) client.Client {
	return interceptor.NewClient(all, interceptor.Funcs{
		Create: func(ctx context.Context, inner client.WithWatch, obj client.Object, options ...client.CreateOption) error {
			w.writes++
			return inner.Create(ctx, obj, options...)
		},
		Update: func(ctx context.Context, inner client.WithWatch, obj client.Object, options ...client.UpdateOption) error {
			w.writes++
			return inner.Update(ctx, obj, options...)
		},
		Delete: func(ctx context.Context, inner client.WithWatch, obj client.Object, options ...client.DeleteOption) error {
			w.writes++
			return inner.Delete(ctx, obj, options...)
		},
		Patch: func(
			ctx context.Context, inner client.WithWatch, obj client.Object, patch client.Patch, options ...client.PatchOption,
		) error {
			w.writes++
			return inner.Patch(ctx, obj, patch, options...)
		},
		Apply: func(
			ctx context.Context, inner client.WithWatch, obj runtime.ApplyConfiguration, options ...client.ApplyOption,
		) error {
			w.writes++
			if err := inner.Apply(ctx, obj, options...); err != nil {
				return err
			}
			return w.created(ctx, inner)
		},
		SubResourcePatch: func(
			ctx context.Context, inner client.Client, name string, obj client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption,
		) error {
			w.writes++
			return inner.SubResource(name).Patch(ctx, obj, patch, options...)
		},
	})
}

// created dates new Machines, as an API server does and the fake client does not.
func (w *world) created(ctx context.Context, inner client.Client) error {
	machines := &clusterv1.MachineList{}
	if err := inner.List(ctx, machines); err != nil {
		return err
	}
	for i := range machines.Items {
		if each := &machines.Items[i]; each.CreationTimestamp.IsZero() {
			each.CreationTimestamp = metav1.Now()
			if err := inner.Update(ctx, each); err != nil {
				return err
			}
		}
	}
	return nil
}

// --- the workload cluster and the provider ---------------------------------------------------------------------------

// list answers with the pods of all nodes as of now.
func (w *world) list(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return inner.List(ctx, list, options...)
	}
	asked := client.ListOptions{}
	asked.ApplyOptions(options)
	for name, each := range w.nodes {
		if asked.FieldSelector == nil || asked.FieldSelector.String() == "spec.nodeName="+name {
			pods.Items = append(pods.Items, each.pods()...)
		}
	}
	return nil
}

func (w *world) evict(
	_ context.Context, _ client.Client, _ string, pod, made client.Object, _ ...client.SubResourceCreateOption,
) error {
	grace := int64(30) // of the pod itself, on a node that reports
	if options := made.(*policyv1.Eviction).DeleteOptions; options != nil && options.GracePeriodSeconds != nil {
		grace = *options.GracePeriodSeconds
	}
	for _, each := range w.nodes {
		if slices.ContainsFunc(each.given.Pods, func(one Pod) bool { return one.Name == pod.GetName() }) {
			return each.evict(pod.GetName(), grace)
		}
	}
	return apierrors.NewNotFound(corev1.Resource("pods"), pod.GetName())
}

func (w *world) deleteNode(ctx context.Context, inner client.WithWatch, obj client.Object, options ...client.DeleteOption) error {
	w.owned.Gone[obj.GetName()] = w.since()
	delete(w.nodes, obj.GetName())
	return inner.Delete(ctx, obj, options...)
}

// lose turns the Ready condition of nodes Unknown whose time has come.
func (w *world) lose(ctx context.Context) {
	for name, at := range w.given.Unknown {
		found := &corev1.Node{}
		if w.since() < float64(at) || w.workload.Get(ctx, client.ObjectKey{Name: name}, found) != nil {
			continue
		}
		if ready := &found.Status.Conditions[0]; ready.Status != corev1.ConditionUnknown {
			ready.Status, ready.LastTransitionTime = corev1.ConditionUnknown, metav1.Now()
			must(w.workload.Status().Update(ctx, found))
			w.writes++
		}
	}
}

// provide does what a provider of infrastructure does: an instance ends, or becomes a node, after the given time.
func (w *world) provide(ctx context.Context) {
	takes := time.Duration(w.given.Provider) * time.Second
	w.busy = false
	found := &unstructured.UnstructuredList{}
	found.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	found.SetKind("GenericInfrastructureMachineList")
	must(w.management.List(ctx, found))
	for _, each := range found.Items {
		at := each.GetDeletionTimestamp()
		if at != nil && time.Since(at.Time) >= takes {
			each.SetFinalizers(nil)
			must(w.management.Update(ctx, &each))
		}
		w.busy = w.busy || at != nil
	}
	machines := &clusterv1.MachineList{}
	must(w.management.List(ctx, machines))
	for i := range machines.Items {
		each := &machines.Items[i]
		if each.Status.NodeRef.Name != "" || each.DeletionTimestamp != nil || !w.began.Before(each.CreationTimestamp.Time) {
			continue
		}
		w.busy = true
		if time.Since(each.CreationTimestamp.Time) >= takes {
			w.join(ctx, each)
		}
	}
}

func (w *world) join(ctx context.Context, joins *clusterv1.Machine) {
	id := "generic://" + joins.Name
	made := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: joins.Name, UID: joins.UID},
		Spec:       corev1.NodeSpec{ProviderID: id},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	must(w.workload.Create(ctx, made))
	if _, master := joins.Labels[clusterv1.MachineControlPlaneLabel]; master {
		w.members = append(w.members, joins.Name)
	}
	w.nodes[joins.Name] = &node{given: &Drain{}, began: w.began, evicted: map[string]metav1.Time{}}
	joins.Spec.ProviderID = id
	must(w.management.Update(ctx, joins))
	joins.Status.NodeRef.Name = joins.Name
	w.writes++
	must(w.management.Status().Update(ctx, joins))
}

// read notes which Machines are being deleted, and what their owners say.
func (w *world) read(ctx context.Context) {
	machines := &clusterv1.MachineList{}
	must(w.management.List(ctx, machines))
	for i := range machines.Items {
		each := &machines.Items[i]
		if w.began.Before(each.CreationTimestamp.Time) {
			continue
		}
		if _, known := w.owned.Deleted[each.Name]; !known && each.DeletionTimestamp != nil {
			w.owned.Deleted[each.Name] = w.since()
		}
		if said := conditions.Get(each, clusterv1.MachineOwnerRemediatedCondition); said != nil && said.Message != "" {
			w.owned.Said[each.Name] = said.Message
		}
	}
}
