package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	k8sv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	v1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"

	"kubevirt.io/kubevirt/pkg/controller"
	"kubevirt.io/kubevirt/pkg/testutils"
)

const (
	namespace = "shop"
	stays     = "stays"
	label     = "guest"
	tick      = 100 * time.Millisecond
	starting  = time.Second // of a pod, and of a guest in it
	heartbeat = time.Minute // of virt-handler
)

// world is one run.
type world struct {
	*client
	core, virt *tracker
	informers  *informers
	given      *Case
	guests     map[string]*Guest
	loss       time.Time
	lock       sync.Mutex
	seen       map[string]time.Time // when the kubelet or virt-handler first saw something
	result     Result
	pods       map[string]*PodSeen
	vmis       map[string]*VMISeen
}

func seconds(number float64) time.Duration { return time.Duration(number * float64(time.Second)) }

func (w *world) now() float64 { return time.Since(w.loss).Seconds() }

func (w *world) isLost(node string) bool { return node != stays && w.now() >= 0 }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func run(given *Case) (*Result, error) {
	config, _, _ := testutils.NewFakeClusterConfigUsingKV(&given.KubeVirt)
	c, core, virt := fakeClient()
	w := &world{
		client: c, core: core, virt: virt, informers: watchAll(c), given: given, guests: map[string]*Guest{},
		loss: time.Now().Add(seconds(given.Lost)), seen: map[string]time.Time{},
		pods: map[string]*PodSeen{}, vmis: map[string]*VMISeen{},
	}
	w.observe()
	if err := w.fill(); err != nil {
		return nil, err
	}
	if err := startControllers(c, w.informers, config); err != nil {
		return nil, err
	}
	go w.beat()
	go w.runNodes()
	for name, guest := range w.guests {
		for _, action := range guest.Do {
			go func() {
				time.Sleep(time.Until(w.loss.Add(seconds(action.At))))
				w.do(name, action.What)
			}()
		}
	}
	time.Sleep(time.Until(w.loss))
	w.result.Objects = w.objects()
	w.lose()
	time.Sleep(seconds(given.Seconds))
	w.lock.Lock()
	return &w.result, nil
}

// fill creates what is there at the beginning.
func (w *world) fill() error {
	ctx := context.Background()
	nodes := []string{stays}
	for i := range w.given.Guests {
		guest := &w.given.Guests[i]
		w.guests[guest.Name] = guest
		nodes = append(nodes, nodeOf(guest.Name))
		if err := w.create(guest); err != nil {
			return fmt.Errorf("%s: %w", guest.Name, err)
		}
	}
	for _, name := range nodes {
		made := &k8sv1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			k8sv1.LabelHostname: name, v1.NodeSchedulable: "true", "node-role.kubernetes.io/worker": "",
		}}}
		made.Status.Allocatable = k8sv1.ResourceList{
			"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "pods": resource.MustParse("500"),
			"devices.kubevirt.io/kvm": resource.MustParse("1k"), "devices.kubevirt.io/tun": resource.MustParse("1k"),
			"devices.kubevirt.io/vhost-net": resource.MustParse("1k"), "ephemeral-storage": resource.MustParse("100Gi"),
		}
		made.Status.Conditions = []k8sv1.NodeCondition{{Type: k8sv1.NodeReady, Status: k8sv1.ConditionTrue}}
		if _, err := w.CoreV1().Nodes().Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	handler := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "virt-handler", Labels: map[string]string{v1.AppLabel: "virt-handler"}}}
	_, err := w.AppsV1().DaemonSets("kubevirt").Create(ctx, handler, metav1.CreateOptions{})
	return err
}

func nodeOf(guest string) string { return "n-" + guest }

func (w *world) create(guest *Guest) error {
	ctx, how := context.Background(), metav1.CreateOptions{}
	var err error
	switch guest.Kind {
	case "VirtualMachine":
		made := &v1.VirtualMachine{}
		if err = json.Unmarshal(guest.Object, made); err == nil {
			_, err = w.VirtualMachine(namespace).Create(ctx, made, how)
		}
	case "VirtualMachineInstance":
		made := &v1.VirtualMachineInstance{}
		if err = json.Unmarshal(guest.Object, made); err == nil {
			_, err = w.VirtualMachineInstance(namespace).Create(ctx, made, how)
		}
	case "VirtualMachineInstanceReplicaSet":
		made := &v1.VirtualMachineInstanceReplicaSet{}
		if err = json.Unmarshal(guest.Object, made); err == nil {
			_, err = w.ReplicaSet(namespace).Create(ctx, made, how)
		}
	case "VirtualMachinePool":
		made := &poolv1.VirtualMachinePool{}
		if err = json.Unmarshal(guest.Object, made); err == nil {
			_, err = w.VirtualMachinePool(namespace).Create(ctx, made, how)
		}
	}
	return err
}

// --- nodes ---------------------------------------------------------------------------------------------------------

// beat is the heartbeat of the virt-handlers.
func (w *world) beat() {
	for {
		for _, obj := range all[*k8sv1.Node](w.informers.nodes) {
			if w.isLost(obj.Name) {
				continue
			}
			obj = obj.DeepCopy()
			metav1.SetMetaDataAnnotation(&obj.ObjectMeta, v1.VirtHandlerHeartbeat, metav1.Now().UTC().Format(time.RFC3339))
			_, err := w.CoreV1().Nodes().Update(context.Background(), obj, metav1.UpdateOptions{})
			must(err)
		}
		time.Sleep(heartbeat)
	}
}

// runNodes is the scheduler, the kubelets and the virt-handlers of nodes that are not lost.
func (w *world) runNodes() {
	for {
		time.Sleep(tick)
		for _, pod := range all[*k8sv1.Pod](w.informers.pods) {
			if pod = pod.DeepCopy(); w.runPod(pod) {
				// changed meanwhile: the next tick reads it again
				_, _ = w.CoreV1().Pods(namespace).UpdateStatus(context.Background(), pod, metav1.UpdateOptions{})
			}
		}
		for _, vmi := range all[*v1.VirtualMachineInstance](w.informers.vmis) {
			if vmi = vmi.DeepCopy(); w.runGuest(vmi) {
				_, _ = w.VirtualMachineInstance(namespace).Update(context.Background(), vmi, metav1.UpdateOptions{})
			}
		}
	}
}

// since returns how long something has been there, in the eyes of a node.
func (w *world) since(what string) time.Duration {
	if _, known := w.seen[what]; !known {
		w.seen[what] = time.Now()
	}
	return time.Since(w.seen[what])
}

// runPod tells whether it changed a pod.
func (w *world) runPod(pod *k8sv1.Pod) bool {
	guest := w.guests[pod.Labels[label]]
	switch {
	case pod.Spec.NodeName == "":
		pod.Spec.NodeName = stays
		if w.now() < 0 {
			pod.Spec.NodeName = nodeOf(guest.Name)
		}
		return true
	case w.isLost(pod.Spec.NodeName):
		return false
	case pod.DeletionTimestamp != nil:
		if w.since("end "+pod.Name) >= starting {
			must(w.remove(pod))
		}
		return false
	case pod.Status.Phase != k8sv1.PodPending || w.since(pod.Name) < starting:
		return false
	case guest.Fails > 0:
		guest.Fails--
		pod.Status.Phase = k8sv1.PodFailed
		return true
	}
	pod.Status.Phase = k8sv1.PodRunning
	started := k8sv1.ContainerState{Running: &k8sv1.ContainerStateRunning{StartedAt: metav1.Now()}}
	pod.Status.ContainerStatuses = []k8sv1.ContainerStatus{{Name: "compute", Ready: true, State: started}}
	podutil.UpdatePodCondition(&pod.Status, &k8sv1.PodCondition{Type: k8sv1.PodReady, Status: k8sv1.ConditionTrue})
	return true
}

// runGuest tells whether virt-handler changed a VMI.
func (w *world) runGuest(vmi *v1.VirtualMachineInstance) bool {
	held := vmi.Status.NodeName != stays && w.guests[vmi.Labels[label]].Reaches == string(v1.Scheduled)
	if vmi.Status.Phase != v1.Scheduled || held || w.isLost(vmi.Status.NodeName) || w.since(string(vmi.UID)) < starting {
		return false
	}
	before := vmi.Status.DeepCopy()
	vmi.Status.Phase = v1.Running
	controller.SetVMIPhaseTransitionTimestamp(before, &vmi.Status)
	return true
}

func (w *world) remove(pod *k8sv1.Pod) error {
	err := w.CoreV1().Pods(namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if errors.IsNotFound(err) {
		return nil
	}
	return err
}

// lose is what kube-controller-manager writes about nodes that no longer report.
func (w *world) lose() {
	for name := range w.guests {
		w.change(nodeOf(name), func(found *k8sv1.Node) { found.Status.Conditions[0].Status = k8sv1.ConditionUnknown })
	}
}

func (w *world) change(name string, change func(*k8sv1.Node)) {
	for {
		found, err := w.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
		must(err)
		change(found)
		_, err = w.CoreV1().Nodes().Update(context.Background(), found, metav1.UpdateOptions{})
		if !errors.IsConflict(err) {
			must(err)
			return
		}
	}
}

// --- what is seen --------------------------------------------------------------------------------------------------

func all[T metav1.Object](from cache.SharedIndexInformer) []T {
	found := []T{}
	for _, each := range from.GetStore().List() {
		found = append(found, each.(T))
	}
	slices.SortFunc(found, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return found
}

// objects lists everything as it is stored now.
func (w *world) objects() []any {
	found := []any{}
	for _, each := range []struct {
		from *tracker
		of   gvr
		kind string
	}{
		{w.core, k8sv1.SchemeGroupVersion.WithResource("nodes"), "Node"},
		{w.core, k8sv1.SchemeGroupVersion.WithResource("pods"), "Pod"},
		{w.virt, v1.SchemeGroupVersion.WithResource("virtualmachines"), "VirtualMachine"},
		{w.virt, v1.SchemeGroupVersion.WithResource("virtualmachineinstances"), "VirtualMachineInstance"},
		{w.virt, v1.SchemeGroupVersion.WithResource("virtualmachineinstancereplicasets"), "VirtualMachineInstanceReplicaSet"},
		{w.virt, poolv1.SchemeGroupVersion.WithResource("virtualmachinepools"), "VirtualMachinePool"},
	} {
		kind := each.of.GroupVersion().WithKind(each.kind)
		list, err := each.from.ObjectTracker.List(each.of, kind, metav1.NamespaceAll)
		must(err)
		must(meta.EachListItem(list, func(obj runtime.Object) error {
			obj = obj.DeepCopyObject()
			obj.GetObjectKind().SetGroupVersionKind(kind)
			found = append(found, obj)
			return nil
		}))
	}
	return found
}

// observe records the launcher pods and VMIs.
func (w *world) observe() {
	handle(w, w.informers.pods, func(pod *k8sv1.Pod, gone bool) {
		row, known := w.pods[string(pod.UID)]
		if !known {
			row = &PodSeen{Guest: pod.Labels[label], VMI: string(metav1.GetControllerOf(pod).UID), Terminating: -1, Gone: -1}
			w.pods[string(pod.UID)] = row
			w.result.Pods = append(w.result.Pods, row)
		}
		row.Node = pod.Spec.NodeName
		if pod.DeletionTimestamp != nil && row.Terminating == -1 {
			row.Terminating = w.now()
		}
		if gone {
			row.Gone = w.now()
		}
	})
	handle(w, w.informers.vmis, func(vmi *v1.VirtualMachineInstance, gone bool) {
		row, known := w.vmis[string(vmi.UID)]
		if !known {
			row = &VMISeen{Guest: vmi.Labels[label], UID: string(vmi.UID), Created: w.now(), Failed: -1, Gone: -1}
			w.vmis[string(vmi.UID)] = row
			w.result.VMIs = append(w.result.VMIs, row)
		}
		if vmi.IsFinal() && row.Failed == -1 {
			row.Failed = w.now()
		}
		if gone {
			row.Gone = w.now()
		}
	})
}

func handle[T any](w *world, informer cache.SharedIndexInformer, seen func(obj *T, gone bool)) {
	note := func(obj any, gone bool) {
		w.lock.Lock()
		defer w.lock.Unlock()
		seen(obj.(*T), gone)
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { note(obj, false) },
		UpdateFunc: func(_, obj any) { note(obj, false) },
		DeleteFunc: func(obj any) { note(obj, true) },
	})
	must(err)
}
