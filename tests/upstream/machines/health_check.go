package main

import (
	"context"
	"time"
	_ "unsafe" // for the private constructor of the reconciler

	machinev1 "github.com/openshift/api/machine/v1beta1"
	"github.com/openshift/machine-api-operator/pkg/controller/machinehealthcheck"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

//go:linkname newHealthCheck github.com/openshift/machine-api-operator/pkg/controller/machinehealthcheck.newReconciler
func newHealthCheck(manager.Manager, manager.Options) (*machinehealthcheck.ReconcileMachineHealthCheck, error)

// Check is a cluster with one MachineHealthCheck. Times are seconds since the beginning.
type Check struct {
	Objects []map[string]any `json:"objects"` // Nodes, Machines, the MachineHealthCheck
	Unknown map[string]int   `json:"unknown"` // when the Ready condition of a node becomes Unknown
	Seconds int              `json:"seconds"`
}

// noIndex is a cache that cannot look up Machines by their node, which only events of nodes need.
type noIndex struct{ cache.Cache }

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

// check returns when OpenShift's MachineHealthCheck has deleted which Machine.
func check(given *Check) map[string]float64 {
	ctx, began := context.Background(), time.Now()
	scheme := runtime.NewScheme()
	if err := machinev1.Install(scheme); err != nil {
		panic(err)
	}
	if err := clientscheme.AddToScheme(scheme); err != nil {
		panic(err)
	}
	request, objects := reconcile.Request{}, []client.Object{}
	for _, each := range given.Objects {
		obj := &unstructured.Unstructured{Object: each}
		if obj.GetKind() == "MachineHealthCheck" {
			request.NamespacedName = client.ObjectKeyFromObject(obj)
		}
		typed, err := scheme.New(obj.GroupVersionKind())
		if err != nil {
			panic(err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(each, typed); err != nil {
			panic(err)
		}
		objects = append(objects, typed.(client.Object))
	}
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&machinev1.MachineHealthCheck{}, &machinev1.Machine{}).Build()
	reconciler, err := newHealthCheck(stub{client: cluster, scheme: scheme}, manager.Options{})
	if err != nil {
		panic(err)
	}
	deleted := map[string]float64{}
	for next := time.Duration(0); time.Since(began) < time.Duration(given.Seconds)*time.Second; {
		time.Sleep(untilNext(given, began, next) + time.Millisecond)
		lose(ctx, given, cluster, began)
		result, err := reconciler.Reconcile(ctx, request)
		if next = result.RequeueAfter; err != nil || next < time.Second { // it asks for one each millisecond while it refuses
			next = time.Minute
		}
		machines := &machinev1.MachineList{}
		if err := cluster.List(ctx, machines); err != nil {
			panic(err)
		}
		for _, each := range machines.Items {
			if _, known := deleted[each.Name]; !known && each.DeletionTimestamp != nil {
				deleted[each.Name] = time.Since(began).Seconds()
			}
		}
	}
	return deleted
}

// untilNext returns how long it is until the reconcile that was asked for, or until a node turns Unknown.
func untilNext(given *Check, began time.Time, next time.Duration) time.Duration {
	for _, at := range given.Unknown {
		if wait := time.Duration(at)*time.Second - time.Since(began); wait > 0 {
			next = min(next, wait)
		}
	}
	return next
}

func lose(ctx context.Context, given *Check, cluster client.Client, began time.Time) {
	for name, at := range given.Unknown {
		node := &corev1.Node{}
		if err := cluster.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
			panic(err)
		}
		ready := &node.Status.Conditions[0]
		if ready.Status != corev1.ConditionUnknown && time.Since(began) >= time.Duration(at)*time.Second {
			ready.Status, ready.LastTransitionTime = corev1.ConditionUnknown, metav1.Now()
			if err := cluster.Status().Update(ctx, node); err != nil {
				panic(err)
			}
		}
	}
}
