package main

import (
	"context"
	"maps"
	"time"

	k8sv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/controller"
)

// Behaviour is how the target pods and migrations of one VMI go. All times are seconds.
type Behaviour struct {
	Start    int    `json:"start"`    // from the binding of a target pod to its running container
	Ready    int    `json:"ready"`    // from there until it is ready
	Prepare  int    `json:"prepare"`  // of virt-handler on the target node
	Ending   int    `json:"ending"`   // of the old pod after a migration
	Failures int    `json:"failures"` // the number of its first migrations that fail
	Fails    int    `json:"fails"`    // from the start of a migration that fails to its failure
	Reason   string `json:"reason"`   // of the failures
	Refused  bool   `json:"refused"`  // whether the API server refuses to create its target pods
}

// Request is what a user does at some second.
type Request struct {
	At       int    `json:"at"`
	Do       string `json:"do"` // migrate, cancel or uncordon
	VMI      string `json:"vmi"`
	Node     string `json:"node"`
	Priority string `json:"priority"`
}

func (w *world) of(namespace, vmi string) Behaviour { return w.given.Behaviour[namespace+"/"+vmi] }

// refuse makes the API server refuse the target pods of some VMIs, as an admission webhook may.
func (w *world) refuse(action clienttesting.Action) (bool, runtime.Object, error) {
	creation, is := action.(clienttesting.CreateAction)
	if !is || action.GetSubresource() != "" {
		return false, nil, nil
	}
	pod, is := creation.GetObject().(*k8sv1.Pod)
	if !is || pod.Labels[v1.MigrationJobLabel] == "" || !w.of(action.GetNamespace(), pod.Annotations[v1.DomainAnnotation]).Refused {
		return false, nil, nil
	}
	return true, nil, errors.NewForbidden(k8sv1.Resource("pods"), pod.GenerateName, nil)
}

// obey does what users ask for, each at its time.
func (w *world) obey() {
	for _, each := range w.given.Requests {
		go func() {
			time.Sleep(seconds(each.At))
			w.do(each)
		}()
	}
}

func (w *world) do(asked Request) {
	ctx := context.Background()
	switch asked.Do {
	case "uncordon":
		w.givenUp.Store(asked.Node, true)
		w.cordon(asked.Node, false)
	case "migrate":
		made := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{GenerateName: "user-"}}
		made.Annotations = map[string]string{}
		made.Spec.VMIName = asked.VMI
		if asked.Priority != "" {
			priority := v1.MigrationPriority(asked.Priority)
			made.Spec.Priority = &priority
		}
		if !w.migratable(asked.VMI) { // virt-api refuses it (validating-webhook/admitters/migration-create-admitter.go)
			return
		}
		for _, other := range w.migrations() { // the API server refuses a second one
			if other.Spec.VMIName == asked.VMI && !other.IsFinal() {
				return
			}
		}
		if _, err := w.VirtualMachineInstanceMigration(w.given.VMINamespace()).Create(ctx, made, metav1.CreateOptions{}); err != nil {
			w.fail(err)
		}
	case "cancel":
		for _, each := range w.migrations() {
			if each.Spec.VMIName == asked.VMI && !each.IsFinal() && each.DeletionTimestamp == nil {
				each = each.DeepCopy()
				now := metav1.Now() // its finalizer keeps it
				each.DeletionTimestamp = &now
				// changed meanwhile: the user comes too late
				_, _ = w.VirtualMachineInstanceMigration(each.Namespace).Update(ctx, each, metav1.UpdateOptions{})
			}
		}
	}
}

func (w *world) migratable(name string) bool {
	for _, vmi := range w.vmis() {
		if vmi.Name == name {
			reported := controller.NewVirtualMachineInstanceConditionManager()
			return !reported.HasConditionWithStatus(vmi, v1.VirtualMachineInstanceIsMigratable, k8sv1.ConditionFalse)
		}
	}
	return false
}

// VMINamespace is the namespace of the VMIs.
func (c *Case) VMINamespace() string { return c.VMIs[0].Namespace }

// end is how virt-handler and virt-launcher end a migration that fails or was cancelled; nil: it goes on.
func (w *world) end(state *v1.VirtualMachineInstanceMigrationState, how Behaviour, now *metav1.Time) bool {
	running := time.Since(state.StartTimestamp.Time)
	switch {
	case state.AbortRequested && state.AbortStatus == "":
		state.AbortStatus = v1.MigrationAbortInProgress
		w.aborts[state.MigrationUID] = now.Time
		return true
	case state.AbortRequested && time.Since(w.aborts[state.MigrationUID]) >= 2*time.Second:
		state.AbortStatus, state.FailureReason = v1.MigrationAbortSucceeded, "Live migration has been aborted"
	case !state.AbortRequested && w.tries[state.MigrationUID] <= how.Failures && running >= seconds(how.Fails):
		state.FailureReason = how.Reason
	default:
		return false
	}
	state.Failed, state.Completed, state.EndTimestamp = true, true, now
	return true
}

// count gives each migration of a VMI its number, from 1.
func (w *world) count(vmi *v1.VirtualMachineInstance) {
	uid := vmi.Status.MigrationState.MigrationUID
	if _, known := w.tries[uid]; !known {
		w.perVMI[vmi.Name]++
		w.tries[uid] = w.perVMI[vmi.Name]
	}
}

// dropFinished deletes cancelled migrations without finalizers, as the API server does.
func (w *world) dropFinished() {
	for _, each := range w.migrations() {
		if each.DeletionTimestamp != nil && len(each.Finalizers) == 0 {
			// it may be gone, or is tried again in the next tick
			_ = w.VirtualMachineInstanceMigration(each.Namespace).Delete(context.Background(), each.Name, metav1.DeleteOptions{})
		}
	}
}

// noteActivePods writes the pods of each VMI that have not ended into its status, as virt-controller does
// (pkg/virt-controller/watch/vmi/lifecycle.go#updateStatus). That also makes the evacuation controller look again.
func (w *world) noteActivePods() {
	if w.camera == nil {
		return
	}
	for _, vmi := range w.vmis() {
		active := map[types.UID]string{}
		for _, pod := range w.pods() {
			if metav1.IsControlledBy(pod, vmi) && !podutil.IsPodTerminal(pod) {
				active[pod.UID] = pod.Spec.NodeName
			}
		}
		if !maps.Equal(active, vmi.Status.ActivePods) {
			vmi = vmi.DeepCopy()
			vmi.Status.ActivePods = active
			// changed meanwhile: the next tick reads it again
			_, _ = w.VirtualMachineInstance(vmi.Namespace).Update(context.Background(), vmi, metav1.UpdateOptions{})
		}
	}
}
