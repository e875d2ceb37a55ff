package main

import (
	"context"

	"github.com/medik8s/fence-agents-remediation/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// newStore returns the API server: the fake client, and what it lacks of the real one.
func newStore(objects []map[string]any) client.WithWatch {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	found := []client.Object{}
	for _, each := range objects {
		found = append(found, typed(scheme, each))
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(found...).
		WithStatusSubresource(&v1alpha1.FenceAgentsRemediation{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(obj client.Object) []string {
			return []string{obj.(*corev1.Pod).Spec.NodeName}
		}).
		WithInterceptorFuncs(interceptor.Funcs{Update: update, DeleteAllOf: deleteAllOf}).Build()
}

func typed(scheme *runtime.Scheme, given map[string]any) client.Object {
	obj, err := scheme.New((&unstructured.Unstructured{Object: given}).GroupVersionKind())
	if err != nil {
		panic(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(given, obj); err != nil {
		panic(err)
	}
	return obj.(client.Object)
}

// update sets the default of the definition: the operator's type leaves a count of 0 out when it is written.
func update(ctx context.Context, store client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
	if far, is := obj.(*v1alpha1.FenceAgentsRemediation); is && far.Spec.RetryCount == 0 {
		far.Spec.RetryCount = 5
	}
	return store.Update(ctx, obj, opts...)
}

// deleteAllOf obeys the field selector, which the fake client ignores, and the finalizers of pods.
func deleteAllOf(
	ctx context.Context, store client.WithWatch, _ client.Object, opts ...client.DeleteAllOfOption,
) error {
	given := client.DeleteAllOfOptions{}
	given.ApplyOptions(opts)
	pods := &corev1.PodList{}
	if err := store.List(ctx, pods, &given.ListOptions); err != nil {
		return err
	}
	for _, each := range pods.Items {
		if err := store.Delete(ctx, &each, &given.DeleteOptions); err != nil {
			return err
		}
	}
	return nil
}

// show returns what the API server has of the remediation and its node.
func show(store client.Client, key client.ObjectKey, node string) (State, *v1alpha1.FenceAgentsRemediation) {
	ctx := context.Background()
	state := State{Taints: []string{}, Conditions: map[string]string{}}
	far := &v1alpha1.FenceAgentsRemediation{}
	if err := store.Get(ctx, key, far); err != nil {
		state.Gone, far = true, nil
	} else {
		state.Finalizer = len(far.Finalizers) > 0
		for _, each := range far.Status.Conditions {
			state.Conditions[each.Type] = string(each.Status) + " " + each.Reason
		}
	}
	found := &corev1.Node{}
	if err := store.Get(ctx, client.ObjectKey{Name: node}, found); err == nil {
		for _, each := range found.Spec.Taints {
			state.Taints = append(state.Taints, each.Key+":"+string(each.Effect))
		}
	}
	pods := &corev1.PodList{}
	if err := store.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		panic(err)
	}
	state.Pods = len(pods.Items)
	return state, far
}

func fields(far *v1alpha1.FenceAgentsRemediation) map[string]any {
	made, err := runtime.DefaultUnstructuredConverter.ToUnstructured(far)
	if err != nil {
		panic(err)
	}
	made["kind"], made["apiVersion"] = "FenceAgentsRemediation", v1alpha1.GroupVersion.String()
	return made
}
