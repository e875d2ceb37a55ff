package main

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	k8sv1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8sfield "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	"kubevirt.io/client-go/kubecli"
	"kubevirt.io/client-go/kubevirt"
	kubevirtfake "kubevirt.io/client-go/kubevirt/fake"
	poolclient "kubevirt.io/client-go/kubevirt/typed/pool/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"kubevirt.io/kubevirt/pkg/controller"
	instancetype "kubevirt.io/kubevirt/pkg/instancetype/controller/vm"
	netadmitter "kubevirt.io/kubevirt/pkg/network/admitter"
	netcontrollers "kubevirt.io/kubevirt/pkg/network/controllers"
	netmigration "kubevirt.io/kubevirt/pkg/network/migration"
	netannotations "kubevirt.io/kubevirt/pkg/network/pod/annotations"
	"kubevirt.io/kubevirt/pkg/network/resources"
	storageannotations "kubevirt.io/kubevirt/pkg/storage/pod/annotations"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
	"kubevirt.io/kubevirt/pkg/virt-controller/services"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/node"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/pool"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/replicaset"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/topology"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/vm"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/vmi"
)

// resync is longer than any run. Without a period, informers wait on a channel of client-go outside the bubble.
const resync = 1000 * time.Hour

// client has the APIs that the controllers use.
type client struct {
	kubecli.KubevirtClient
	core kubernetes.Interface
	virt kubevirt.Interface
}

func fakeClient() (*client, *tracker, *tracker) {
	core, virt := fake.NewSimpleClientset(), kubevirtfake.NewSimpleClientset()
	return &client{core: core, virt: virt}, store(&core.Fake, core.Tracker()), store(&virt.Fake, virt.Tracker())
}

func (c *client) CoreV1() coreclient.CoreV1Interface          { return c.core.CoreV1() }
func (c *client) AppsV1() appsclient.AppsV1Interface          { return c.core.AppsV1() }
func (c *client) GeneratedKubeVirtClient() kubevirt.Interface { return c.virt }
func (c *client) VirtualMachine(ns string) kubecli.VirtualMachineInterface {
	return c.virt.KubevirtV1().VirtualMachines(ns)
}
func (c *client) VirtualMachineInstance(ns string) kubecli.VirtualMachineInstanceInterface {
	return c.virt.KubevirtV1().VirtualMachineInstances(ns)
}
func (c *client) ReplicaSet(ns string) kubecli.ReplicaSetInterface {
	return c.virt.KubevirtV1().VirtualMachineInstanceReplicaSets(ns)
}
func (c *client) VirtualMachinePool(ns string) poolclient.VirtualMachinePoolInterface {
	return c.virt.PoolV1beta1().VirtualMachinePools(ns)
}

// silent drops events.
type silent struct{}

func (silent) Event(runtime.Object, string, string, string)          {}
func (silent) Eventf(runtime.Object, string, string, string, ...any) {}
func (silent) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
}

// informers are those of virt-controller.
type informers struct {
	vms, vmis, pods, nodes, sets, pools, revisions cache.SharedIndexInformer
}

func watchAll(c *client) *informers {
	virt, all := c.virt.KubevirtV1(), metav1.NamespaceAll
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	revisions := controller.GetControllerRevisionInformerIndexers()
	return &informers{
		vms:       informer(virt.VirtualMachines(all), &v1.VirtualMachine{}, controller.GetVirtualMachineInformerIndexers()),
		vmis:      informer(virt.VirtualMachineInstances(all), &v1.VirtualMachineInstance{}, controller.GetVMIInformerIndexers()),
		sets:      informer(virt.VirtualMachineInstanceReplicaSets(all), &v1.VirtualMachineInstanceReplicaSet{}, byNamespace),
		pools:     informer(c.virt.PoolV1beta1().VirtualMachinePools(all), &poolv1.VirtualMachinePool{}, byNamespace),
		pods:      informer(c.core.CoreV1().Pods(all), &k8sv1.Pod{}, byNamespace),
		nodes:     informer(c.core.CoreV1().Nodes(), &k8sv1.Node{}, cache.Indexers{}),
		revisions: informer(c.core.AppsV1().ControllerRevisions(all), &appsv1.ControllerRevision{}, revisions),
	}
}

// source lists and watches one kind.
type source[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func informer[L runtime.Object](from source[L], of runtime.Object, by cache.Indexers) cache.SharedIndexInformer {
	listWatch := &cache.ListWatch{
		ListFunc: func(options metav1.ListOptions) (runtime.Object, error) {
			return from.List(context.Background(), options)
		},
		WatchFunc: func(options metav1.ListOptions) (watch.Interface, error) {
			return from.Watch(context.Background(), options)
		},
	}
	return cache.NewSharedIndexInformer(listWatch, of, resync, by)
}

// unread is the informer of a kind without objects, which never runs.
type unread struct{ cache.SharedIndexInformer }

func (unread) HasSynced() bool { return true }

func empty(of runtime.Object) cache.SharedIndexInformer {
	by := controller.GetVirtualMachineInstanceMigrationInformerIndexers()
	if _, is := of.(*v1.VirtualMachineInstanceMigration); !is {
		by = cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	}
	return unread{cache.NewSharedIndexInformer(&cache.ListWatch{}, of, 0, by)}
}

// startControllers starts the controllers with as many workers as virt-controller has (app.go#defaultControllerThreads).
func startControllers(c *client, found *informers, config *virtconfig.ClusterConfig) error {
	claims, volumes, kubevirts := empty(&k8sv1.PersistentVolumeClaim{}), empty(&cdiv1.DataVolume{}), empty(&v1.KubeVirt{})
	store := func() cache.Indexer { return empty(&k8sv1.ConfigMap{}).GetIndexer() }
	netAnnotations := netannotations.NewGenerator(config)
	service := services.NewTemplateService("launcher", 240, "/share", "/ephemeral", "/container", "/hotplug", "",
		store(), c, config, 107, "exporter", store(), store(), services.WithNetMemoryCalculator(resources.MemoryCalculator{}))
	vms, err := vm.NewController(
		found.vmis, found.vms, volumes, empty(&cdiv1.DataSource{}), kubevirts, empty(&k8sv1.Namespace{}), claims, found.revisions,
		silent{}, c, config, netcontrollers.NewVMController(c.virt, config), vm.NewFirmwareController(c.virt),
		instancetype.New(store(), store(), store(), store(), found.revisions.GetStore(), c, config, silent{}), nil, nil,
	)
	if err != nil {
		return err
	}
	vmis, err := vmi.NewController(
		service, found.vmis, found.vms, found.pods, claims, empty(&v1.VirtualMachineInstanceMigration{}),
		empty(&storagev1.StorageClass{}), silent{}, c, volumes, empty(&cdiv1.StorageProfile{}), empty(&cdiv1.CDI{}),
		empty(&cdiv1.CDIConfig{}), kubevirts, config, topology.NewTopologyHinter(found.nodes.GetStore(), found.vmis.GetStore(), config),
		netAnnotations, storageannotations.NewGenerator(config), netcontrollers.UpdateVMIStatus,
		func(at *k8sfield.Path, spec *v1.VirtualMachineInstanceSpec, config *virtconfig.ClusterConfig) []metav1.StatusCause {
			return netadmitter.ValidateCreation(at, spec, config)
		}, netmigration.NewEvaluator(config), nil, nil,
	)
	if err != nil {
		return err
	}
	nodes, err := node.NewController(c, found.nodes, found.vmis, silent{})
	if err != nil {
		return err
	}
	sets, err := replicaset.NewController(found.vmis, found.sets, silent{}, c, controller.BurstReplicas)
	if err != nil {
		return err
	}
	pools, err := pool.NewController(
		c, found.vmis, found.vms, found.pools, claims, volumes, found.revisions, silent{}, controller.BurstReplicas)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	for _, each := range []cache.SharedIndexInformer{
		found.vms, found.vmis, found.pods, found.nodes, found.sets, found.pools, found.revisions,
	} {
		go each.Run(stop)
	}
	time.Sleep(time.Second) // the fake clients lose what is created between a list and its watch
	const workers = 3
	for _, start := range []func(int, <-chan struct{}){vms.Run, vmis.Run, nodes.Run, sets.Run, pools.Run} {
		go start(workers, stop)
	}
	return nil
}
