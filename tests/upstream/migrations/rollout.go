package main

import (
	"context"
	"encoding/json"
	"log"
	"sync"
	"time"

	k8sv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	v1 "kubevirt.io/api/core/v1"

	"kubevirt.io/kubevirt/pkg/defaults"
	"kubevirt.io/kubevirt/pkg/testutils"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
	"kubevirt.io/kubevirt/pkg/virt-controller/services"
)

// retry is the time after which `kubectl drain` repeats a refused eviction (k8s.io/kubectl/pkg/drain/drain.go).
const retry = 5 * time.Second

// atOnce deletes a pod as the API server does when its kubelet has confirmed that its containers ended.
var atOnce = metav1.DeleteOptions{GracePeriodSeconds: new(int64)}

func run(given *Case, c *client) (*Result, error) {
	config, _, _ := testutils.NewFakeClusterConfigUsingKV(&given.KubeVirt)
	c.unschedulable = given.Unschedulable
	service := templateService(c, config)
	w := &world{
		client: c, given: given, begin: time.Now(), bound: map[string]time.Time{}, index: map[string]int{},
		result: &Result{Migrations: []Migration{}, Started: map[string]float64{}, Ended: map[string]float64{}, Emptied: map[string]float64{}, Gone: map[string]float64{}, Where: map[string]string{}},
		tries:  map[types.UID]int{}, perVMI: map[string]int{}, aborts: map[types.UID]time.Time{},
	}
	if err := w.fill(config, service); err != nil {
		return nil, err
	}
	if !c.live {
		if err := startScheduler(c); err != nil {
			return nil, err
		}
	}
	w.informers = watchAll(c, given.Namespace)
	if err := startControllers(c, w.informers, config, service); err != nil {
		return nil, err
	}
	if !c.live {
		c.core.(*fake.Clientset).PrependReactor("create", "pods", w.refuse)
	}
	w.camera = newCamera(w)
	go w.runNodes()
	time.Sleep(time.Second)
	w.begin = time.Now()
	if c.written != nil {
		c.written.Store(func() { w.camera.offer("write") })
	}
	go w.camera.watchTime()
	w.obey()
	w.rollOut()
	w.result.Moments, w.result.Seconds = w.camera.moments(), w.now()
	for _, vmi := range w.vmis() {
		w.result.Where[vmi.Namespace+"/"+vmi.Name] = vmi.Status.NodeName
	}
	if c.live {
		w.over.Store(true)
		return w.result, w.leave()
	}
	return w.result, nil
}

// fill creates the objects of the case: VMIs with KubeVirt's defaults, each with the pod that KubeVirt renders for it.
func (w *world) fill(config *virtconfig.ClusterConfig, service *services.TemplateService) error {
	ctx := context.Background()
	for _, vmi := range w.given.VMIs { // migration policies are chosen by the labels of the namespace
		namespace := &k8sv1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: vmi.Namespace}}
		if _, err := w.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !errors.IsAlreadyExists(err) {
			return err
		}
	}
	for i := range w.given.Nodes {
		node, err := w.CoreV1().Nodes().Create(ctx, &w.given.Nodes[i], metav1.CreateOptions{})
		if err == nil {
			err = w.untaint(node)
		}
		if err != nil {
			return err
		}
	}
	for i := range w.given.VMIs {
		vmi := &w.given.VMIs[i]
		status := vmi.Status.DeepCopy()
		if err := defaults.SetDefaultVirtualMachineInstance(config, vmi); err != nil {
			return err
		}
		vmi.Status = *status
		vmi, err := w.VirtualMachineInstance(vmi.Namespace).Create(ctx, stored(vmi), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		pod, err := service.RenderLaunchManifest(vmi)
		if err != nil {
			return err
		}
		w.result.VMIs = append(w.result.VMIs, *vmi)
		pod.Namespace, pod.Spec.NodeName = vmi.Namespace, vmi.Status.NodeName
		w.given.Pods = append(w.given.Pods, *pod)
	}
	for i := range w.given.Pods {
		pod := &w.given.Pods[i]
		created, err := w.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		runPod(created, true)
		if created, err = w.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
			return err
		}
		w.result.Pods = append(w.result.Pods, *created)
	}
	return nil
}

// stored returns the VMI as it is read from the API server, which changes how quantities are written.
func stored(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	read := &v1.VirtualMachineInstance{}
	text, err := json.Marshal(vmi)
	if err == nil {
		err = json.Unmarshal(text, read)
	}
	if err != nil {
		log.Fatal(err)
	}
	return read
}

// rollOut updates all nodes, or as many as become empty before the deadline.
func (w *world) rollOut() {
	var lock sync.Mutex
	done := make(chan struct{})
	var all sync.WaitGroup
	for _, pool := range w.given.Pools {
		all.Add(1)
		go func() {
			defer all.Done()
			places := make(chan struct{}, pool.Capacity)
			for _, node := range pool.Nodes {
				places <- struct{}{}
				lock.Lock()
				w.result.Started[node] = w.now() // before any request, so that the order is the order of the pool
				lock.Unlock()
				all.Add(1)
				go func() {
					defer all.Done()
					w.update(node, &lock)
					<-places
				}()
				time.Sleep(time.Millisecond) // nodes of one moment start in order
			}
		}()
	}
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(seconds(w.given.Deadline)):
	case <-w.stalled():
	}
	time.Sleep(2 * tick) // the last migrations are recorded
}

// stalled tells when no migration has succeeded for the seconds of the case, and no node has been updated.
func (w *world) stalled() <-chan struct{} {
	told := make(chan struct{})
	if w.given.Stall == 0 {
		return told
	}
	go func() {
		last, since := -1, time.Now()
		for time.Since(since) < seconds(w.given.Stall) {
			time.Sleep(time.Second)
			steps := 0
			for _, each := range w.migrations() {
				if each.Status.Phase == v1.MigrationSucceeded {
					steps++
				}
			}
			for _, node := range all[*k8sv1.Node](w.informers.nodes) {
				if !node.Spec.Unschedulable {
					steps += 1000 // neither can make up for the other
				}
			}
			if steps != last {
				last, since = steps, time.Now()
			}
		}
		close(told)
	}()
	return told
}

// update cordons a node, drains it, waits for its reboot and uncordons it.
func (w *world) update(node string, lock *sync.Mutex) {
	w.cordon(node, true)
	time.Sleep(tick) // all nodes of one moment are cordoned before the first eviction
	for w.evict(node) > 0 {
		time.Sleep(retry)
		if _, over := w.givenUp.Load(node); over {
			return
		}
	}
	lock.Lock()
	w.result.Emptied[node] = w.now()
	lock.Unlock()
	time.Sleep(seconds(w.given.Reboot))
	w.cordon(node, false)
	lock.Lock()
	w.result.Ended[node] = w.now()
	lock.Unlock()
}

func (w *world) cordon(node string, unschedulable bool) {
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"unschedulable": unschedulable}})
	if err == nil {
		_, err = w.CoreV1().Nodes().Patch(context.Background(), node, types.MergePatchType, text, metav1.PatchOptions{})
	}
	if err != nil {
		w.fail(err)
	}
}

// evict asks for the eviction of every pod on a node once, and returns how many were refused. The answers are those of
// virt-api (pod-eviction-admitter.go): a launcher pod is refused, and its VMI is marked for evacuation.
func (w *world) evict(node string) int {
	refused := 0
	for _, pod := range w.pods() {
		if pod.Spec.NodeName != node {
			continue
		}
		if podutil.IsPodTerminal(pod) || pod.Labels[v1.AppLabel] != "virt-launcher" {
			err := w.CoreV1().Pods(pod.Namespace).Delete(context.Background(), pod.Name, atOnce)
			if err != nil && !errors.IsNotFound(err) {
				w.fail(err)
			}
			continue
		}
		refused++
		w.mark(pod.Namespace, pod.Annotations[v1.DomainAnnotation], node)
	}
	return refused
}

func (w *world) mark(namespace, name, node string) {
	vmi, err := w.VirtualMachineInstance(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.fail(err)
		return
	}
	if !vmi.IsMigratable() || vmi.IsMarkedForEviction() || vmi.Status.NodeName != node {
		return
	}
	patch := []byte(`[{"op": "add", "path": "/status/evacuationNodeName", "value": "` + node + `"}]`)
	if _, err := w.VirtualMachineInstance(namespace).Patch(context.Background(), name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		w.fail(err)
	}
}

// fail ends the program, unless the result is already known: nodes that were given up are still being drained then.
func (w *world) fail(err error) {
	if !w.over.Load() {
		log.Fatal(err)
	}
}
