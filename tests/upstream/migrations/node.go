package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	k8sv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
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

	camera  *camera
	givenUp sync.Map                // nodes whose drain was given up
	tries   map[types.UID]int       // the number of each migration among those of its VMI
	perVMI  map[string]int          // migrations of each VMI
	aborts  map[types.UID]time.Time // when virt-handler began to cancel each migration
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
		w.dropFinished()
		w.noteActivePods()
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
		how := w.of(pod.Namespace, pod.Annotations[v1.DomainAnnotation])
		running := pod.Status.Phase == k8sv1.PodRunning
		if pod.Spec.NodeName == "" || podutil.IsPodReady(pod) || !running && pod.Status.Phase != k8sv1.PodPending {
			continue
		}
		if _, seen := w.bound[pod.Name]; !seen {
			w.bound[pod.Name] = time.Now()
		}
		since := time.Since(w.bound[pod.Name]) - seconds(how.Start)
		isReady := since >= starting+seconds(how.Ready)
		if since >= starting && !running || isReady {
			pod = pod.DeepCopy()
			runPod(pod, isReady)
			if _, err := w.CoreV1().Pods(pod.Namespace).UpdateStatus(context.Background(), pod, metav1.UpdateOptions{}); err != nil {
				continue // changed meanwhile: the next tick reads it again
			}
		}
	}
}

func runPod(pod *k8sv1.Pod, isReady bool) {
	pod.Status.Phase = k8sv1.PodRunning
	running := k8sv1.ContainerState{Running: &k8sv1.ContainerStateRunning{StartedAt: metav1.Now()}}
	ready := k8sv1.PodCondition{Type: k8sv1.PodReady, Status: k8sv1.ConditionFalse}
	pod.Status.ContainerStatuses = []k8sv1.ContainerStatus{{Name: "compute", Ready: isReady, State: running}}
	if isReady {
		ready.Status = k8sv1.ConditionTrue
	} else { // its second container has not started
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, k8sv1.ContainerStatus{Name: "guest-console-log"})
	}
	podutil.UpdatePodCondition(&pod.Status, &ready)
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
	how := w.of(vmi.Namespace, vmi.Name)
	w.count(vmi)
	switch {
	case state.TargetNodeAddress == "":
		if w.prepares(state.MigrationUID, how) {
			return
		}
		state.TargetNodeAddress = "10.0.0.1"
	case state.StartTimestamp == nil:
		state.StartTimestamp = &now
	case w.end(state, how, &now):
	case state.AbortRequested || w.tries[state.MigrationUID] <= how.Failures:
		return
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
		go w.endPod(vmi, state.SourceNode, k8sv1.PodSucceeded, seconds(how.Ending))
	} else if state.Failed {
		go w.endPod(vmi, state.TargetNode, k8sv1.PodFailed, 0)
	}
}

// prepares tells whether virt-handler still prepares a migration on the target node.
func (w *world) prepares(migration types.UID, how Behaviour) bool {
	key := string(migration)
	if _, seen := w.bound[key]; !seen {
		w.bound[key] = time.Now()
	}
	return time.Since(w.bound[key]) < seconds(how.Prepare)
}

// endPod lets the launcher pod of a VMI on a node end, as it does when its domain is gone.
func (w *world) endPod(vmi *v1.VirtualMachineInstance, node string, phase k8sv1.PodPhase, after time.Duration) {
	time.Sleep(after)
	for _, pod := range w.pods() {
		if metav1.IsControlledBy(pod, vmi) && pod.Spec.NodeName == node && pod.Status.Phase == k8sv1.PodRunning {
			pod = pod.DeepCopy()
			pod.Status.Phase = phase
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
	exist := map[int]bool{}
	for _, migration := range w.migrations() {
		at, known := w.index[string(migration.UID)]
		if !known {
			at = len(w.result.Migrations)
			w.index[string(migration.UID)] = at
			w.result.Migrations = append(w.result.Migrations, Migration{
				UID: string(migration.UID), Phases: map[string]float64{},
				VMI: migration.Namespace + "/" + migration.Spec.VMIName, Source: migration.Annotations[v1.EvacuationMigrationAnnotation],
				Created: w.now(), Pod: -1, Bound: -1, Ended: -1,
			})
		}
		exist[at] = true
		row := &w.result.Migrations[at]
		row.Phase = string(migration.Status.Phase)
		if _, known := row.Phases[row.Phase]; !known {
			row.Phases[row.Phase] = w.now()
		}
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
	for at := range w.result.Migrations {
		if row := &w.result.Migrations[at]; !exist[at] && row.Ended < 0 { // cancelled
			row.Phase, row.Ended = string(v1.MigrationFailed), w.now()
		}
	}
	for _, pod := range w.pods() {
		if _, known := w.result.Gone[pod.Name]; !known && podutil.IsPodTerminal(pod) {
			w.result.Gone[pod.Name] = w.now()
		}
	}
}
