package main

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	k8sv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
)

const (
	tick     = 100 * time.Millisecond
	starting = time.Second // from the binding of a pod to its running container
)

// world is one run: the stored objects and what was seen of them.
type world struct {
	*client
	informers *informers
	given     *Case
	begin     time.Time
	bound     map[string]time.Time // when the kubelet first saw each pod
	result    *Result
	index     map[string]int // of a migration in the result, by UID
	over      atomic.Bool    // the result is known
}

func (w *world) now() float64 { return time.Since(w.begin).Seconds() }

// pods, vmis and migrations are read from the informers: a copy of every object for every tick would take too long.
func (w *world) pods() []*k8sv1.Pod { return all[*k8sv1.Pod](w.informers.pods) }

func (w *world) vmis() []*v1.VirtualMachineInstance {
	return all[*v1.VirtualMachineInstance](w.informers.vmis)
}

func (w *world) migrations() []*v1.VirtualMachineInstanceMigration {
	return all[*v1.VirtualMachineInstanceMigration](w.informers.migrations)
}

func all[T metav1.Object](from cache.SharedIndexInformer) []T {
	found := []T{}
	for _, each := range from.GetStore().List() {
		found = append(found, each.(T))
	}
	slices.SortFunc(found, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return found
}

// runNodes is the kubelet and the virt-handler of all nodes.
func (w *world) runNodes() {
	for {
		time.Sleep(tick)
		w.startPods()
		w.record()
		for _, vmi := range w.vmis() {
			w.handle(vmi)
		}
	}
}

// startPods runs the containers of pods that kube-scheduler bound, and ends those of deleted ones.
func (w *world) startPods() {
	for _, pod := range w.pods() {
		if pod.DeletionTimestamp != nil {
			// it may be gone, or is tried again in the next tick
			_ = w.CoreV1().Pods(pod.Namespace).Delete(context.Background(), pod.Name, atOnce)
			continue
		}
		if pod.Spec.NodeName == "" || pod.Status.Phase != k8sv1.PodPending {
			continue
		}
		if _, seen := w.bound[pod.Name]; !seen {
			w.bound[pod.Name] = time.Now()
		}
		if time.Since(w.bound[pod.Name]) >= starting {
			pod = pod.DeepCopy()
			runPod(pod)
			if _, err := w.CoreV1().Pods(pod.Namespace).UpdateStatus(context.Background(), pod, metav1.UpdateOptions{}); err != nil {
				continue // changed meanwhile: the next tick reads it again
			}
		}
	}
}

func runPod(pod *k8sv1.Pod) {
	pod.Status.Phase = k8sv1.PodRunning
	running := k8sv1.ContainerState{Running: &k8sv1.ContainerStateRunning{StartedAt: metav1.Now()}}
	pod.Status.ContainerStatuses = []k8sv1.ContainerStatus{{Name: "compute", Ready: true, State: running}}
}

// handle is one step of virt-handler on source and target node (pkg/virt-handler/migration-source.go, migration-target.go).
func (w *world) handle(vmi *v1.VirtualMachineInstance) {
	state := vmi.Status.MigrationState
	if state == nil || state.MigrationUID == "" || state.Completed || state.TargetNode == "" {
		return
	}
	vmi = vmi.DeepCopy()
	state = vmi.Status.MigrationState
	now := metav1.NewTime(time.Now())
	finished := false
	switch {
	case state.TargetNodeAddress == "":
		state.TargetNodeAddress = "10.0.0.1"
	case state.StartTimestamp == nil:
		state.StartTimestamp = &now
	case time.Since(state.StartTimestamp.Time) >= seconds(w.given.Seconds[vmi.Namespace+"/"+vmi.Name]):
		state.TargetNodeDomainReadyTimestamp, state.EndTimestamp, state.Completed = &now, &now, true
		vmi.Status.NodeName, vmi.Status.EvacuationNodeName = state.TargetNode, ""
		vmi.Labels[v1.NodeNameLabel] = state.TargetNode
		finished = true
	default:
		return
	}
	if _, err := w.VirtualMachineInstance(vmi.Namespace).Update(context.Background(), vmi, metav1.UpdateOptions{}); err != nil {
		return // changed meanwhile: the next tick reads it again
	}
	if finished {
		w.endSource(vmi)
	}
}

// endSource lets the launcher pod on the source node end, as it does when its domain is gone.
func (w *world) endSource(vmi *v1.VirtualMachineInstance) {
	for _, pod := range w.pods() {
		if metav1.IsControlledBy(pod, vmi) && pod.Spec.NodeName == vmi.Status.MigrationState.SourceNode && pod.Status.Phase == k8sv1.PodRunning {
			pod = pod.DeepCopy()
			pod.Status.Phase = k8sv1.PodSucceeded
			pod.ResourceVersion = "" // nothing else writes it any more
			if _, err := w.CoreV1().Pods(pod.Namespace).UpdateStatus(context.Background(), pod, metav1.UpdateOptions{}); err != nil {
				w.fail(err)
			}
		}
	}
}

// record notes what became of each migration.
func (w *world) record() {
	pods := map[string]*k8sv1.Pod{}
	for _, pod := range w.pods() {
		if job := pod.Labels[v1.MigrationJobLabel]; job != "" {
			pods[job] = pod
		}
	}
	for _, migration := range w.migrations() {
		at, known := w.index[string(migration.UID)]
		if !known {
			at = len(w.result.Migrations)
			w.index[string(migration.UID)] = at
			w.result.Migrations = append(w.result.Migrations, Migration{
				VMI: migration.Namespace + "/" + migration.Spec.VMIName, Source: migration.Annotations[v1.EvacuationMigrationAnnotation],
				Created: w.now(), Pod: -1, Bound: -1, Ended: -1,
			})
		}
		row := &w.result.Migrations[at]
		row.Phase = string(migration.Status.Phase)
		if pod, exists := pods[string(migration.UID)]; exists {
			if row.Pod < 0 {
				row.Pod = w.now()
			}
			if row.Bound < 0 && pod.Spec.NodeName != "" {
				row.Target, row.Bound = pod.Spec.NodeName, w.now()
			}
		}
		if migration.IsFinal() && row.Ended < 0 {
			row.Ended = w.now()
		}
	}
}
