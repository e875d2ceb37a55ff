// launcher prints the pods that KubeVirt would create for VMIs: one case a line in, one result a line out, both JSON.
//
// It links KubeVirt's own code: the defaults that virt-api writes into a new VMI, TemplateService, and the migration
// controller's function that creates the target pod.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	_ "unsafe" // for go:linkname

	networkv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	k8sv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"
	"kubevirt.io/client-go/kubecli"
	kubevirtlog "kubevirt.io/client-go/log"
	networkclient "kubevirt.io/client-go/networkattachmentdefinitionclient"
	networkfake "kubevirt.io/client-go/networkattachmentdefinitionclient/fake"

	"kubevirt.io/kubevirt/pkg/hooks"
	"kubevirt.io/kubevirt/pkg/instancetype/apply"
	preferenceapply "kubevirt.io/kubevirt/pkg/instancetype/preference/apply"
	"kubevirt.io/kubevirt/pkg/network/netbinding"
	"kubevirt.io/kubevirt/pkg/network/resources"
	"kubevirt.io/kubevirt/pkg/network/vmispec"
	"kubevirt.io/kubevirt/pkg/testutils"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/mutating-webhook/mutators"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
	"kubevirt.io/kubevirt/pkg/virt-controller/services"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/migration"
)

// createTargetPod is what the migration controller does once a migration may start; it is not exported.
//
//go:linkname createTargetPod kubevirt.io/kubevirt/pkg/virt-controller/watch/migration.(*Controller).createTargetPod
func createTargetPod(*migration.Controller, *v1.VirtualMachineInstanceMigration, *v1.VirtualMachineInstance, *k8sv1.Pod) error

// Case is a VMI as a user writes it, and what KubeVirt reads besides.
type Case struct {
	KubeVirt  v1.KubeVirt                             `json:"kubevirt"`
	Namespace k8sv1.Namespace                         `json:"namespace"`
	Quotas    []k8sv1.ResourceQuota                   `json:"quotas"`
	Claims    []k8sv1.PersistentVolumeClaim           `json:"claims"`
	Networks  []networkv1.NetworkAttachmentDefinition `json:"networks"`
	Node      k8sv1.Node                              `json:"node"` // where the VMI runs
	VMI       v1.VirtualMachineInstance               `json:"vmi"`
	Type      *Type                                   `json:"type"`
	Migrated  map[string]string                       `json:"migrated"` // node selector that an earlier migration left
}

// Type is the instance type and the preference of the VM that starts the VMI.
type Type struct {
	Instancetype *instancetypev1beta1.VirtualMachineInstancetypeSpec `json:"instancetype"`
	Preference   *instancetypev1beta1.VirtualMachinePreferenceSpec   `json:"preference"`
}

// Result has the VMI with KubeVirt's defaults, its first pod and the target pod of its migration, or an error.
type Result struct {
	VMI       *v1.VirtualMachineInstance `json:"vmi,omitempty"`
	Launch    *Pod                       `json:"launch,omitempty"`
	Migration *Pod                       `json:"migration,omitempty"`
	Error     string                     `json:"error,omitempty"`
}

// Pod is a rendered pod with what its containers request and may use.
type Pod struct {
	Labels   map[string]string `json:"labels"`
	Spec     k8sv1.PodSpec     `json:"spec"`
	Requests map[string]int64  `json:"requests"`
	Limits   map[string]int64  `json:"limits"`
}

// client answers the two APIs that the code under test uses.
type client struct {
	kubecli.KubevirtClient
	core     *fake.Clientset
	networks *networkfake.Clientset
}

func (c client) CoreV1() corev1.CoreV1Interface         { return c.core.CoreV1() }
func (c client) NetworkClient() networkclient.Interface { return c.networks }

func main() {
	kubevirtlog.Log.SetIOWriter(io.Discard)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		given := Case{}
		if err := json.Unmarshal(in.Bytes(), &given); err != nil {
			log.Fatalf("not a case: %v", err)
		}
		result, err := render(&given)
		if err != nil {
			result = &Result{Error: err.Error()}
		}
		if err := json.NewEncoder(out).Encode(result); err != nil {
			log.Fatal(err)
		}
		out.Flush()
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}

func render(given *Case) (result *Result, err error) {
	defer func() {
		if crash := recover(); crash != nil {
			err = fmt.Errorf("crash: %v", crash)
		}
	}()
	config, _, _ := testutils.NewFakeClusterConfigUsingKV(&given.KubeVirt)
	vmi := &given.VMI
	if given.Type != nil {
		if err := expand(given.Type, vmi, config); err != nil {
			return nil, err
		}
	}
	if err := mutators.ApplyNewVMIMutations(vmi, config); err != nil {
		return nil, err
	}
	vmi, err = stored(vmi)
	if err != nil {
		return nil, err
	}
	virt := clientOf(given)
	service := templateService(given, virt, config)
	first, err := service.RenderLaunchManifest(vmi)
	if err != nil {
		return nil, err
	}
	result = &Result{VMI: vmi.DeepCopy(), Launch: podOf(first)}
	source := first.DeepCopy()
	source.Name, source.Namespace, source.Spec.NodeName = "source", vmi.Namespace, given.Node.Name
	for key, value := range given.Migrated {
		source.Spec.NodeSelector[key] = value
	}
	vmi.Status.NodeName, vmi.Status.SelinuxContext = given.Node.Name, "none"
	target, err := targetOf(given, vmi, virt, config, service, source)
	if err != nil {
		return nil, err
	}
	result.Migration = podOf(target)
	return result, nil
}

// stored returns the VMI as virt-controller reads it from the API server, which changes how quantities are written.
func stored(vmi *v1.VirtualMachineInstance) (*v1.VirtualMachineInstance, error) {
	text, err := json.Marshal(vmi)
	if err != nil {
		return nil, err
	}
	read := &v1.VirtualMachineInstance{}
	return read, json.Unmarshal(text, read)
}

// expand does what the VM controller does before it creates a VMI.
func expand(given *Type, vmi *v1.VirtualMachineInstance, config *virtconfig.ClusterConfig) error {
	if given.Preference != nil {
		preferenceapply.ApplyAutoAttachPreferences(given.Preference, &vmi.Spec)
	}
	if err := vmispec.SetDefaultNetworkInterface(config, &vmi.Spec); err != nil {
		return err
	}
	conflicts := apply.NewVMIApplier().ApplyToVMI(field.NewPath("spec"), given.Instancetype, given.Preference, &vmi.Spec, &vmi.ObjectMeta)
	if len(conflicts) > 0 {
		return conflicts
	}
	return nil
}

func clientOf(given *Case) client {
	networks := networkfake.NewSimpleClientset()
	for i := range given.Networks {
		each := &given.Networks[i]
		_, err := networks.K8sCniCncfIoV1().NetworkAttachmentDefinitions(each.Namespace).Create(context.Background(), each, metav1.CreateOptions{})
		if err != nil {
			panic(err)
		}
	}
	return client{core: fake.NewSimpleClientset(), networks: networks}
}

func templateService(given *Case, virt client, config *virtconfig.ClusterConfig) *services.TemplateService {
	quotas, namespaces, claims := store(), store(), store()
	for i := range given.Quotas {
		quotas.Add(&given.Quotas[i])
	}
	for i := range given.Claims {
		claims.Add(&given.Claims[i])
	}
	namespaces.Add(&given.Namespace)
	return services.NewTemplateService("launcher", 240, "/share", "/ephemeral", "/container", "/hotplug", "",
		claims, virt, config, 107, "exporter", quotas, namespaces,
		services.WithSidecarCreator(func(vmi *v1.VirtualMachineInstance, _ *v1.KubeVirtConfiguration) (hooks.HookSidecarList, error) {
			return hooks.UnmarshalHookSidecarList(vmi)
		}),
		services.WithSidecarCreator(netbinding.NetBindingPluginSidecarList),
		services.WithNetMemoryCalculator(resources.MemoryCalculator{}),
	)
}

func targetOf(given *Case, vmi *v1.VirtualMachineInstance, virt client, config *virtconfig.ClusterConfig, service *services.TemplateService, source *k8sv1.Pod) (*k8sv1.Pod, error) {
	nodes := informer(&k8sv1.Node{})
	nodes.GetStore().Add(&given.Node)
	controller, err := migration.NewController(service,
		informer(&v1.VirtualMachineInstance{}), informer(&k8sv1.Pod{}), informer(&v1.VirtualMachineInstanceMigration{}), nodes,
		informer(&k8sv1.PersistentVolumeClaim{}), informer(&k8sv1.ConfigMap{}), informer(&k8sv1.ConfigMap{}),
		informer(&k8sv1.ConfigMap{}), informer(&k8sv1.ResourceQuota{}), informer(&v1.KubeVirt{}),
		record.NewFakeRecorder(100), virt, config, nil)
	if err != nil {
		return nil, err
	}
	wanted := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Name: "move", Namespace: vmi.Namespace, UID: "move"}}
	if err := createTargetPod(controller, wanted, vmi, source); err != nil {
		return nil, err
	}
	pods, err := virt.CoreV1().Pods(vmi.Namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		return nil, fmt.Errorf("%d target pods, %v", len(pods.Items), err)
	}
	return &pods.Items[0], nil
}

func store() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

func informer(object runtime.Object) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{}, object, 0, cache.Indexers{})
}

func podOf(pod *k8sv1.Pod) *Pod {
	return &Pod{Labels: pod.Labels, Spec: pod.Spec, Requests: total(&pod.Spec, requestsOf), Limits: total(&pod.Spec, limitsOf)}
}

func requestsOf(container *k8sv1.Container) k8sv1.ResourceList {
	requests := k8sv1.ResourceList{}
	for name, value := range container.Resources.Limits { // as the API server completes them
		requests[name] = value
	}
	for name, value := range container.Resources.Requests {
		requests[name] = value
	}
	return requests
}

func limitsOf(container *k8sv1.Container) k8sv1.ResourceList { return container.Resources.Limits }

// total adds up containers as kube-scheduler does: restartable init containers stay, other init containers run alone.
func total(spec *k8sv1.PodSpec, of func(*k8sv1.Container) k8sv1.ResourceList) map[string]int64 {
	sum, sidecars, peak := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for i := range spec.Containers {
		add(sum, of(&spec.Containers[i]))
	}
	for i := range spec.InitContainers {
		container := &spec.InitContainers[i]
		if container.RestartPolicy != nil && *container.RestartPolicy == k8sv1.ContainerRestartPolicyAlways {
			add(sum, of(container))
			add(sidecars, of(container))
			raise(peak, sidecars)
			continue
		}
		alone := map[string]int64{}
		for name, value := range sidecars {
			alone[name] = value
		}
		add(alone, of(container))
		raise(peak, alone)
	}
	raise(sum, peak)
	return sum
}

func add(sum map[string]int64, list k8sv1.ResourceList) {
	for name, value := range list {
		if strings.EqualFold(string(name), "cpu") {
			sum[string(name)] += value.MilliValue()
		} else {
			sum[string(name)] += value.Value()
		}
	}
}

func raise(sum, other map[string]int64) {
	for name, value := range other {
		sum[name] = max(sum[name], value)
	}
}
