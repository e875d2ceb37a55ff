package main

import (
	"fmt"
	"sync"
	"time"

	k8sv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

type gvr = schema.GroupVersionResource

// tracker stores objects as the API server does where the controllers depend on it: names, UIDs, creation times,
// resource versions with conflicts, finalizers, and what virt-api adds to each VMI.
type tracker struct {
	clienttesting.ObjectTracker
	lock sync.Mutex
	last int
}

// store puts a tracker in front of a fake clientset.
func store(of *clienttesting.Fake, inner clienttesting.ObjectTracker) *tracker {
	ours := &tracker{ObjectTracker: inner}
	of.PrependReactor("*", "*", clienttesting.ObjectReaction(ours))
	of.PrependReactor("delete", "pods", ours.gracefully)
	of.PrependReactor("list", "pods", ours.podsOfNode)
	of.PrependReactor("update", "virtualmachines", ours.partly)
	of.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		watching, err := ours.Watch(action.GetResource(), action.GetNamespace())
		return true, watching, err
	})
	return ours
}

func accessor(obj runtime.Object) metav1.Object {
	found, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	return found
}

func (t *tracker) stamp(obj runtime.Object) metav1.Object {
	found := accessor(obj)
	t.last++
	found.SetResourceVersion(fmt.Sprint(t.last))
	return found
}

func (t *tracker) Create(gvr gvr, obj runtime.Object, ns string, opts ...metav1.CreateOptions) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	found := t.stamp(obj)
	if found.GetName() == "" {
		found.SetName(fmt.Sprintf("%s%05d", found.GetGenerateName(), t.last))
	}
	found.SetNamespace(ns)
	found.SetUID(types.UID(fmt.Sprintf("uid-%s-%d", gvr.Resource, t.last)))
	found.SetCreationTimestamp(metav1.Now())
	found.SetGeneration(1)
	switch made := obj.(type) {
	case *k8sv1.Pod:
		defaults.SetObjectDefaults_Pod(made)
		if made.Status.Phase == "" {
			made.Status.Phase = k8sv1.PodPending
		}
	case *v1.VirtualMachineInstance:
		admit(made)
	}
	return t.ObjectTracker.Create(gvr, obj, ns, opts...)
}

// admit is what virt-api adds to each VMI (mutating-webhook/mutators/vmi-mutator.go).
func admit(vmi *v1.VirtualMachineInstance) {
	vmi.Finalizers = append(vmi.Finalizers, v1.VirtualMachineInstanceFinalizer)
	vmi.Status.Phase = v1.Pending
	vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
		v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: v1.Pending, PhaseTransitionTimestamp: metav1.Now()})
}

func (t *tracker) Update(gvr gvr, obj runtime.Object, ns string, opts ...metav1.UpdateOptions) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	wanted := accessor(obj)
	stored, err := t.ObjectTracker.Get(gvr, ns, wanted.GetName())
	if err != nil {
		return err
	}
	if given := wanted.GetResourceVersion(); given != "" && given != accessor(stored).GetResourceVersion() {
		return errors.NewConflict(gvr.GroupResource(), wanted.GetName(), fmt.Errorf("the object has been modified"))
	}
	return t.write(gvr, obj, ns)
}

func (t *tracker) Patch(gvr gvr, obj runtime.Object, ns string, opts ...metav1.PatchOptions) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.write(gvr, obj, ns)
}

// write stores an object, or removes it if it was deleted and has no finalizer left.
func (t *tracker) write(gvr gvr, obj runtime.Object, ns string) error {
	found := t.stamp(obj)
	if err := t.ObjectTracker.Update(gvr, obj, ns); err != nil {
		return err
	}
	_, isPod := obj.(*k8sv1.Pod)
	if !isPod && found.GetDeletionTimestamp() != nil && len(found.GetFinalizers()) == 0 {
		return t.ObjectTracker.Delete(gvr, ns, found.GetName())
	}
	return nil
}

func (t *tracker) Delete(gvr gvr, ns, name string, opts ...metav1.DeleteOptions) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	stored, err := t.ObjectTracker.Get(gvr, ns, name)
	if err != nil {
		return err
	}
	found := accessor(stored)
	if len(found.GetFinalizers()) == 0 {
		return t.ObjectTracker.Delete(gvr, ns, name)
	}
	if found.GetDeletionTimestamp() != nil {
		return nil
	}
	stored = stored.DeepCopyObject()
	now := metav1.Now()
	accessor(stored).SetDeletionTimestamp(&now)
	return t.write(gvr, stored, ns)
}

// gracefully deletes a pod as the API server does (pkg/registry/core/pod/strategy.go#CheckGracefulDelete): one without a
// node or that has ended goes at once, others when they are deleted with a grace of 0.
func (t *tracker) gracefully(action clienttesting.Action) (bool, runtime.Object, error) {
	asked := action.(clienttesting.DeleteActionImpl)
	stored, err := t.Get(asked.GetResource(), asked.GetNamespace(), asked.GetName())
	if err != nil {
		return true, nil, err
	}
	pod := stored.(*k8sv1.Pod).DeepCopy()
	given := asked.DeleteOptions.GracePeriodSeconds
	if given != nil && *given == 0 || pod.Spec.NodeName == "" || podutil.IsPodTerminal(pod) {
		return true, pod, t.Delete(asked.GetResource(), asked.GetNamespace(), asked.GetName())
	}
	if pod.DeletionTimestamp != nil {
		return true, pod, nil
	}
	end := metav1.NewTime(time.Now().Add(time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, pod.Spec.TerminationGracePeriodSeconds
	return true, pod, t.Update(asked.GetResource(), pod, asked.GetNamespace())
}

// podsOfNode lists the pods of a node, because the fake clientset knows no field selectors.
func (t *tracker) podsOfNode(action clienttesting.Action) (bool, runtime.Object, error) {
	asked := action.(clienttesting.ListActionImpl)
	if asked.ListRestrictions.Fields == nil || asked.ListRestrictions.Fields.Empty() {
		return false, nil, nil
	}
	list, err := t.List(asked.GetResource(), asked.GetKind(), asked.GetNamespace())
	if err != nil {
		return true, nil, err
	}
	found := &k8sv1.PodList{}
	for _, pod := range list.(*k8sv1.PodList).Items {
		if asked.ListRestrictions.Fields.Matches(fields.Set{"spec.nodeName": pod.Spec.NodeName}) {
			found.Items = append(found.Items, pod)
		}
	}
	return true, found, nil
}

// partly updates the status of a VM, or everything else: it has a status subresource.
func (t *tracker) partly(action clienttesting.Action) (bool, runtime.Object, error) {
	asked := action.(clienttesting.UpdateActionImpl)
	wanted := asked.Object.(*v1.VirtualMachine).DeepCopy()
	stored, err := t.Get(asked.GetResource(), asked.GetNamespace(), wanted.Name)
	if err != nil {
		return true, nil, err
	}
	current := stored.(*v1.VirtualMachine).DeepCopy()
	if asked.GetSubresource() == "status" {
		current.Status, current.ResourceVersion = wanted.Status, wanted.ResourceVersion
		wanted = current
	} else {
		wanted.Status = current.Status
	}
	if err := t.Update(asked.GetResource(), wanted, asked.GetNamespace()); err != nil {
		return true, nil, err
	}
	return true, wanted, nil
}
