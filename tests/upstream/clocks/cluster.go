package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	restfake "k8s.io/client-go/rest/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach"
	"k8s.io/kubernetes/pkg/volume/csi"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

const (
	namespace = "shop"
	driver    = "csi.test"
	renewal   = 10 * time.Second // of a kubelet's Lease
	// Without a period, informers wait on a channel of client-go outside the bubble. This one is longer than any run.
	resync = 1000 * time.Hour
	// A round of a controller takes a moment, and its period begins after it. In virtual time it takes none, and a grace
	// period or a quarantine of some whole periods would end one round later.
	moment        = time.Millisecond
	monitorPeriod = 5*time.Second + moment
	podGCPeriod   = 20*time.Second + moment
)

// client answers what the fake one cannot: events are written with the plain REST client.
type client struct{ kubernetes.Interface }

func (c client) CoreV1() typed.CoreV1Interface { return core{c.Interface.CoreV1()} }

type core struct{ typed.CoreV1Interface }

func (core) RESTClient() rest.Interface {
	refuse := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNotFound, Body: io.NopCloser(strings.NewReader(""))}, nil
	}
	return &restfake.RESTClient{
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
		GroupVersion:         corev1.SchemeGroupVersion,
		Client:               restfake.CreateHTTPClient(refuse),
	}
}

// world is the cluster, with what happened in it.
type world struct {
	given  *Case
	client client
	began  time.Time
	lock   sync.Mutex
	result Result
}

func (w *world) since() float64 { return time.Since(w.began).Seconds() }

// note records the first time of something.
func (w *world) note(times map[string]float64, name string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if _, known := times[name]; !known {
		times[name] = w.since()
	}
}

func seconds(number float64) time.Duration { return time.Duration(number * float64(time.Second)) }

func run(given *Case) (*Result, error) {
	ctx := context.Background()
	fakes := fake.NewSimpleClientset()
	fakes.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return gracefully(fakes.Tracker(), action.(clienttesting.DeleteActionImpl))
	})
	w := &world{given: given, client: client{fakes}, began: time.Now(), result: Result{
		Heartbeat: map[string]float64{}, Unknown: map[string]float64{}, Tainted: map[string]float64{},
		Deleted: map[string]float64{}, Gone: map[string]float64{},
		Detached: map[string]float64{}, Attached: map[string]float64{},
	}}
	if err := w.create(ctx); err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(fakes, resync)
	w.observe(ctx, factory)
	starts, err := w.controllers(ctx, factory)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for _, node := range given.Nodes {
		go w.renew(ctx, node)
	}
	for _, action := range given.Actions {
		go w.act(ctx, action)
	}
	time.Sleep(seconds(given.Leader))
	for _, start := range starts {
		go start(ctx)
	}
	time.Sleep(seconds(given.Seconds - given.Leader))
	w.lock.Lock()
	return &w.result, nil
}

// gracefully deletes a pod as the API server does: no kubelet confirms the end, so only a grace of 0 removes the object.
func gracefully(store clienttesting.ObjectTracker, action clienttesting.DeleteActionImpl) (bool, runtime.Object, error) {
	given := action.DeleteOptions.GracePeriodSeconds
	if given != nil && *given == 0 {
		return false, nil, nil
	}
	found, err := store.Get(action.GetResource(), action.GetNamespace(), action.GetName())
	if err != nil {
		return true, nil, err
	}
	pod := found.(*corev1.Pod).DeepCopy()
	if pod.DeletionTimestamp != nil {
		return true, pod, nil
	}
	grace := pod.Spec.TerminationGracePeriodSeconds
	end := metav1.NewTime(time.Now().Add(time.Duration(*grace) * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, grace
	return true, pod, store.Update(action.GetResource(), pod, action.GetNamespace())
}

// controllers makes those of kube-controller-manager, with the defaults of its flags.
func (w *world) controllers(ctx context.Context, factory informers.SharedInformerFactory) ([]func(context.Context), error) {
	v1, storage := factory.Core().V1(), factory.Storage().V1()
	lifecycle, err := nodelifecycle.NewNodeLifecycleController(
		ctx, factory.Coordination().V1().Leases(), v1.Pods(), v1.Nodes(), factory.Apps().V1().DaemonSets(), w.client,
		monitorPeriod, time.Minute, seconds(w.given.Grace), 0.1, 0.01, 50, 0.55,
	)
	if err != nil {
		return nil, err
	}
	eviction, err := tainteviction.New(ctx, w.client, v1.Pods(), v1.Nodes(), "taint-eviction-controller")
	if err != nil {
		return nil, err
	}
	collector := podgc.NewPodGCInternal(ctx, w.client, v1.Pods(), v1.Nodes(), 12500, podGCPeriod, 40*time.Second)
	volumes, err := attachdetach.NewAttachDetachController(
		ctx, w.client, v1.Pods(), v1.Nodes(), v1.PersistentVolumeClaims(), v1.PersistentVolumes(), storage.CSINodes(),
		storage.CSIDrivers(), storage.VolumeAttachments(), csi.ProbeVolumePlugins(), nil, false, time.Minute,
		false, attachdetach.DefaultTimerConfig,
	)
	if err != nil {
		return nil, err
	}
	return []func(context.Context){lifecycle.Run, eviction.Run, collector.Run, volumes.Run}, nil
}

// --- what is there -------------------------------------------------------------------------------------------------

func (w *world) create(ctx context.Context) error {
	required := true
	if _, err := w.client.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: &required},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, node := range w.given.Nodes {
		if err := w.createNode(ctx, node); err != nil {
			return err
		}
	}
	for _, pod := range w.given.Pods {
		if err := w.createVolume(ctx, pod); err != nil {
			return err
		}
		if err := w.createPod(ctx, pod, pod.Name, pod.Node); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) createNode(ctx context.Context, node Node) error {
	labels := map[string]string{corev1.LabelHostname: node.Name}
	if node.Zone != "" {
		labels[corev1.LabelTopologyZone] = node.Zone
	}
	now := metav1.Now()
	_, err := w.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: types.UID(node.Name), Labels: labels, CreationTimestamp: now,
			Annotations: map[string]string{volumeutil.ControllerManagedAttachAnnotation: "true"},
		},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now,
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	renewed := metav1.NowMicro()
	_, err = w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Namespace: corev1.NamespaceNodeLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node.Name, RenewTime: &renewed},
	}, metav1.CreateOptions{})
	return err
}

func (w *world) createVolume(ctx context.Context, pod Pod) error {
	if pod.Volume == "" {
		return nil
	}
	modes := []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(pod.AccessMode)}
	source := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: pod.Volume}}
	_, err := w.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Volume},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: source,
			AccessModes:            modes,
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: pod.Volume, UID: types.UID(pod.Volume)},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = w.client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Volume, Namespace: namespace, UID: types.UID(pod.Volume)},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: pod.Volume, AccessModes: modes},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}, metav1.CreateOptions{})
	return err
}

func (w *world) createPod(ctx context.Context, pod Pod, name, node string) error {
	made := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name)},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: &pod.Grace,
			Containers:                    []corev1.Container{{Name: "compute"}},
			Tolerations: []corev1.Toleration{{
				Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute, TolerationSeconds: pod.Tolerates,
			}},
		},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			// Without it the container counts as ended once the pod is marked for deletion.
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "compute", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
	if pod.Volume != "" {
		claim := corev1.PersistentVolumeClaimVolumeSource{ClaimName: pod.Volume}
		made.Spec.Volumes = []corev1.Volume{{
			Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &claim},
		}}
	}
	_, err := w.client.CoreV1().Pods(namespace).Create(ctx, made, metav1.CreateOptions{})
	return err
}

// --- who acts ------------------------------------------------------------------------------------------------------

// renew is the kubelet of a node.
func (w *world) renew(ctx context.Context, node Node) {
	time.Sleep(seconds(node.Phase))
	leases := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for node.Lost == 0 || w.since() < node.Lost {
		now := metav1.NowMicro()
		_, err := leases.Update(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, Namespace: corev1.NamespaceNodeLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node.Name, RenewTime: &now},
		}, metav1.UpdateOptions{})
		if err != nil {
			panic(err)
		}
		w.lock.Lock()
		w.result.Heartbeat[node.Name] = w.since()
		w.lock.Unlock()
		time.Sleep(renewal)
	}
}

func (w *world) act(ctx context.Context, action Action) {
	time.Sleep(seconds(action.At))
	nodes := w.client.CoreV1().Nodes()
	if action.What == "delete" {
		if err := nodes.Delete(ctx, action.Node, metav1.DeleteOptions{}); err != nil {
			panic(err)
		}
		return
	}
	node, err := nodes.Get(ctx, action.Node, metav1.GetOptions{})
	if err != nil {
		panic(err)
	}
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
		Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute,
	})
	if _, err := nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		panic(err)
	}
}

// attached is the CSI attacher, and the kubelet that mounts the volume.
func (w *world) attached(ctx context.Context, made *storagev1.VolumeAttachment) {
	volume, node := *made.Spec.Source.PersistentVolumeName, made.Spec.NodeName
	done := made.DeepCopy()
	done.Status.Attached = true
	if _, err := w.client.StorageV1().VolumeAttachments().UpdateStatus(ctx, done, metav1.UpdateOptions{}); err != nil {
		panic(err)
	}
	w.note(w.result.Attached, volume+" "+node)
	found, err := w.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return
	}
	used := corev1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/csi/%s^%s", driver, volume))
	found.Status.VolumesInUse = append(found.Status.VolumesInUse, used)
	if _, err := w.client.CoreV1().Nodes().UpdateStatus(ctx, found, metav1.UpdateOptions{}); err != nil {
		panic(err)
	}
}

// observe records what the controllers do, and lets pods come back.
func (w *world) observe(ctx context.Context, factory informers.SharedInformerFactory) {
	next := map[string]Pod{}
	for _, pod := range w.given.Pods {
		next[pod.Name] = pod
	}
	handle(factory.Core().V1().Nodes().Informer(), nil, func(node *corev1.Node) {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionUnknown {
				w.note(w.result.Unknown, node.Name)
			}
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == corev1.TaintNodeUnreachable && taint.Effect == corev1.TaintEffectNoExecute {
				w.note(w.result.Tainted, node.Name)
			}
		}
	}, nil)
	handle(factory.Core().V1().Pods().Informer(), nil, func(pod *corev1.Pod) {
		if pod.DeletionTimestamp != nil {
			w.note(w.result.Deleted, pod.Name)
		}
	}, func(pod *corev1.Pod) {
		w.note(w.result.Gone, pod.Name)
		if again := next[pod.Name]; again.Next != "" {
			if err := w.createPod(ctx, again, pod.Name+"-again", again.Next); err != nil {
				panic(err)
			}
		}
	})
	handle(factory.Storage().V1().VolumeAttachments().Informer(), func(made *storagev1.VolumeAttachment) {
		go w.attached(ctx, made)
	}, nil, func(made *storagev1.VolumeAttachment) {
		w.note(w.result.Detached, *made.Spec.Source.PersistentVolumeName+" "+made.Spec.NodeName)
	})
}

func handle[T any](informer cache.SharedIndexInformer, added, changed, deleted func(*T)) {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if added != nil {
				added(obj.(*T))
			}
		},
		UpdateFunc: func(_, obj any) {
			if changed != nil {
				changed(obj.(*T))
			}
		},
		DeleteFunc: func(obj any) {
			if deleted != nil {
				deleted(obj.(*T))
			}
		},
	})
	if err != nil {
		panic(err)
	}
}
