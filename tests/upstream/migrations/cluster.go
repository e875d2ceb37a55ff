package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	k8sv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
	"kubevirt.io/client-go/kubevirt"
	kubevirtfake "kubevirt.io/client-go/kubevirt/fake"
	networkclient "kubevirt.io/client-go/networkattachmentdefinitionclient"
	networkfake "kubevirt.io/client-go/networkattachmentdefinitionclient/fake"

	"kubevirt.io/kubevirt/pkg/controller"
	"kubevirt.io/kubevirt/pkg/network/resources"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
	"kubevirt.io/kubevirt/pkg/virt-controller/services"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/drain/evacuation"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/migration"
)

// resync is longer than any run. Without a period, informers wait on a channel of client-go outside the bubble.
const resync = 1000 * time.Hour

// tracker stores objects as the API server does where the controllers depend on it: names, UIDs, creation times,
// resource versions with conflicts, and the defaults of pods.
type tracker struct {
	clienttesting.ObjectTracker
	lock    sync.Mutex
	last    int
	written *atomic.Value // a function that is called after each write
}

type gvr = schema.GroupVersionResource

// noted calls the function after a write.
func (t *tracker) noted(err error) error {
	if told, is := t.written.Load().(func()); is && err == nil {
		told()
	}
	return err
}

func (t *tracker) stamp(obj runtime.Object) metav1.Object {
	found, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	t.last++
	found.SetResourceVersion(fmt.Sprint(t.last))
	return found
}

func (t *tracker) Create(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.CreateOptions) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	found := t.stamp(obj)
	if found.GetName() == "" {
		found.SetName(fmt.Sprintf("%s%05d", found.GetGenerateName(), t.last))
	}
	if found.GetUID() == "" {
		found.SetUID(types.UID(fmt.Sprintf("uid-%d", t.last)))
	}
	found.SetCreationTimestamp(metav1.Now())
	if pod, isPod := obj.(*k8sv1.Pod); isPod {
		defaults.SetObjectDefaults_Pod(pod)
		if pod.Status.Phase == "" {
			pod.Status.Phase = k8sv1.PodPending
		}
	}
	if migration, is := obj.(*v1.VirtualMachineInstanceMigration); is {
		admit(migration)
	}
	return t.noted(t.ObjectTracker.Create(gvr, obj, ns, opts...))
}

// admit is what virt-api adds to each migration (mutating-webhook/mutators/migration-create-mutator.go). Without the
// finalizer, one that a user cancels would be gone at once, and its VM would arrive all the same.
func admit(migration *v1.VirtualMachineInstanceMigration) {
	migration.Finalizers = []string{v1.VirtualMachineInstanceMigrationFinalizer}
	migration.Labels = map[string]string{v1.MigrationSelectorLabel: migration.Spec.VMIName}
}

func (t *tracker) Update(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.UpdateOptions) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	wanted, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	stored, err := t.ObjectTracker.Get(gvr, ns, wanted.GetName())
	if err != nil {
		return err
	}
	current, err := meta.Accessor(stored)
	if err != nil {
		return err
	}
	if given := wanted.GetResourceVersion(); given != "" && given != current.GetResourceVersion() {
		return errors.NewConflict(gvr.GroupResource(), wanted.GetName(), fmt.Errorf("the object has been modified"))
	}
	t.stamp(obj)
	return t.noted(t.ObjectTracker.Update(gvr, obj, ns, opts...))
}

func (t *tracker) Patch(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.PatchOptions) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.stamp(obj)
	return t.noted(t.ObjectTracker.Patch(gvr, obj, ns, opts...))
}

// store puts the tracker in front of a fake clientset.
func store(of *clienttesting.Fake, inner clienttesting.ObjectTracker, written *atomic.Value) *tracker {
	ours := &tracker{ObjectTracker: inner, written: written}
	of.PrependReactor("*", "*", clienttesting.ObjectReaction(ours))
	of.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		watching, err := ours.Watch(action.GetResource(), action.GetNamespace())
		return true, watching, err
	})
	return ours
}

// client has the APIs that the controllers use.
type client struct {
	kubecli.KubevirtClient
	core          kubernetes.Interface
	virt          kubevirt.Interface
	networks      networkclient.Interface
	live          bool   // whether this is an API server, with kube-scheduler
	nodes         string // selects the nodes of this cluster among those of the API server
	unschedulable int    // seconds that a target pod may be unschedulable; 0: KubeVirt's default

	written *atomic.Value // a function that is called after each write, where the objects are stored here
	stores  []*tracker    // of Kubernetes and of KubeVirt
}

func (c *client) CoreV1() corev1.CoreV1Interface         { return c.core.CoreV1() }
func (c *client) NetworkClient() networkclient.Interface { return c.networks }
func (c *client) VirtualMachineInstance(ns string) kubecli.VirtualMachineInstanceInterface {
	return c.virt.KubevirtV1().VirtualMachineInstances(ns)
}
func (c *client) VirtualMachineInstanceMigration(ns string) kubecli.VirtualMachineInstanceMigrationInterface {
	return &migrationsOf{c.virt.KubevirtV1().VirtualMachineInstanceMigrations(ns), c.unschedulable}
}

// migrationsOf creates migrations whose target pods may be unschedulable for so many seconds.
type migrationsOf struct {
	kubecli.VirtualMachineInstanceMigrationInterface
	unschedulable int
}

func (m *migrationsOf) Create(ctx context.Context, made *v1.VirtualMachineInstanceMigration, opts metav1.CreateOptions) (*v1.VirtualMachineInstanceMigration, error) {
	if m.unschedulable > 0 {
		made.Annotations[v1.MigrationUnschedulablePodTimeoutSecondsAnnotation] = fmt.Sprint(m.unschedulable)
	}
	return m.VirtualMachineInstanceMigrationInterface.Create(ctx, made, opts)
}

func fakeClient() *client {
	core, virt := fake.NewSimpleClientset(), kubevirtfake.NewSimpleClientset()
	written := &atomic.Value{}
	objects := store(&core.Fake, core.Tracker(), written)
	stores := []*tracker{objects, store(&virt.Fake, virt.Tracker(), written)}
	core.PrependReactor("create", "pods", objects.bind)
	return &client{core: core, virt: virt, networks: networkfake.NewSimpleClientset(), written: written, stores: stores}
}

// bind is what the API server does with the binding of kube-scheduler.
func (t *tracker) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	binding := action.(clienttesting.CreateAction).GetObject().(*k8sv1.Binding)
	gvr := k8sv1.SchemeGroupVersion.WithResource("pods")
	stored, err := t.Get(gvr, action.GetNamespace(), binding.Name)
	if err != nil {
		return true, nil, err
	}
	pod := stored.(*k8sv1.Pod).DeepCopy()
	pod.Spec.NodeName = binding.Target.Name
	podutil.UpdatePodCondition(&pod.Status, &k8sv1.PodCondition{Type: k8sv1.PodScheduled, Status: k8sv1.ConditionTrue})
	return true, binding, t.Update(gvr, pod, pod.Namespace)
}

// silent drops events.
type silent struct{}

func (silent) Event(runtime.Object, string, string, string)          {}
func (silent) Eventf(runtime.Object, string, string, string, ...any) {}
func (silent) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
}

// nothing has no annotations for the network.
type nothing struct{}

func (nothing) GenerateFromActivePod(*v1.VirtualMachineInstance, *k8sv1.Pod) map[string]string {
	return nil
}

// informers are those of virt-controller.
type informers struct {
	vmis, pods, migrations, nodes cache.SharedIndexInformer
}

// watchAll watches the objects of one cluster: those of its namespace, and its nodes.
func watchAll(c *client, namespace string) *informers {
	virt := c.virt.KubevirtV1()
	return &informers{
		vmis:       informer(virt.VirtualMachineInstances(namespace), "", &v1.VirtualMachineInstance{}, controller.GetVMIInformerIndexers()),
		migrations: informer(virt.VirtualMachineInstanceMigrations(namespace), "", &v1.VirtualMachineInstanceMigration{}, controller.GetVirtualMachineInstanceMigrationInformerIndexers()),
		pods:       informer(c.core.CoreV1().Pods(namespace), "", &k8sv1.Pod{}, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		nodes:      informer(c.core.CoreV1().Nodes(), c.nodes, &k8sv1.Node{}, cache.Indexers{}),
	}
}

// source lists and watches one kind.
type source[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func informer[L runtime.Object](from source[L], selector string, of runtime.Object, by cache.Indexers) cache.SharedIndexInformer {
	listWatch := &cache.ListWatch{
		ListFunc: func(options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return from.List(context.Background(), options)
		},
		WatchFunc: func(options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return from.Watch(context.Background(), options)
		},
	}
	return cache.NewSharedIndexInformer(listWatch, of, resync, by)
}

// unread is the informer of a kind without objects, which never runs.
type unread struct{ cache.SharedIndexInformer }

func (unread) HasSynced() bool { return true }

func empty(of runtime.Object) cache.SharedIndexInformer {
	return unread{cache.NewSharedIndexInformer(&cache.ListWatch{}, of, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
}

// startControllers starts KubeVirt's two controllers with as many workers as virt-controller has.
func startControllers(c *client, found *informers, config *virtconfig.ClusterConfig, service *services.TemplateService) error {
	stop := make(chan struct{})
	migrations, err := migration.NewController(service, found.vmis, found.pods, found.migrations, found.nodes,
		empty(&k8sv1.PersistentVolumeClaim{}), empty(&k8sv1.ConfigMap{}), empty(&k8sv1.ConfigMap{}), empty(&k8sv1.ConfigMap{}),
		empty(&k8sv1.ResourceQuota{}), empty(&v1.KubeVirt{}),
		silent{}, c, config, nothing{})
	if err != nil {
		return err
	}
	evacuations, err := evacuation.NewEvacuationController(found.vmis, found.migrations, found.nodes, found.pods, silent{}, c, config)
	if err != nil {
		return err
	}
	for _, each := range []cache.SharedIndexInformer{found.vmis, found.pods, found.migrations, found.nodes} {
		go each.Run(stop)
	}
	const workers = 3 // virt-controller's default for both (app.go#defaultControllerThreads)
	go migrations.Run(workers, stop)
	go evacuations.Run(workers, stop)
	return nil
}

func startScheduler(c *client) error {
	ctx := context.Background()
	metrics.Register()
	factory := scheduler.NewInformerFactory(c.core, resync)
	recorder := func(string) events.EventRecorder { return &events.FakeRecorder{} }
	found, err := scheduler.New(ctx, c.core, factory, nil, recorder)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := found.WaitForHandlersSync(ctx); err != nil {
		return err
	}
	go found.Run(ctx)
	return nil
}

func templateService(c *client, config *virtconfig.ClusterConfig) *services.TemplateService {
	indexer := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	return services.NewTemplateService("launcher", 240, "/share", "/ephemeral", "/container", "/hotplug", "",
		indexer(), c, config, 107, "exporter", indexer(), indexer(), services.WithNetMemoryCalculator(resources.MemoryCalculator{}))
}

func seconds(count int) time.Duration { return time.Duration(count) * time.Second }
