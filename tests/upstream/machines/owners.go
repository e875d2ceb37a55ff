package main

import (
	"context"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/reconcilers/kubeadmcontrolplane"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	"sigs.k8s.io/cluster-api/feature"
	capicontroller "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// look is how often each controller looks again. What it asks to wait for is honored.
const look = 5 * time.Second

// Owners is a cluster of Cluster API that loses nodes. Times are seconds since the beginning.
type Owners struct {
	Objects  []map[string]any `json:"objects"` // of both clusters: Nodes belong to the workload cluster
	Unknown  map[string]int   `json:"unknown"` // when the Ready condition of a node becomes Unknown
	Pods     map[string][]Pod `json:"pods"`    // by node
	Provider int              `json:"provider"`
	Seconds  int              `json:"seconds"`
}

// Owned is what became of the Machines and their nodes.
type Owned struct {
	Deleted map[string]float64 `json:"deleted"` // when the deletion of a Machine began
	Gone    map[string]float64 `json:"gone"`    // when the Node was deleted
	Said    map[string]string  `json:"said"`    // the last words of the owner about a Machine
}

// turn is the last reconcile of an object.
type turn struct {
	written int           // changes of both clusters before it
	asks    time.Duration // when it asks for another one
	at      time.Time
	wait    time.Time // when the next one may be
}

// world is the management cluster with the controllers, and the workload cluster.
type world struct {
	given      *Owners
	began      time.Time
	scheme     *runtime.Scheme
	management client.Client
	workload   client.Client
	nodes      map[string]*node
	members    []string // of etcd, by their nodes
	wait       map[client.ObjectKey]time.Time
	last       map[string]turn
	writes     int
	applied    applied
	busy       bool // whether the provider ends or starts an instance
	capicontroller.Controller
	owned *Owned
}

func owners(given *Owners) *Owned {
	must(feature.MutableGates.Set(string(feature.ClusterTopology) + "=true"))
	w := newWorld(given)
	ctx := context.Background()
	type loop struct {
		list  client.ObjectList
		owner reconcile.Reconciler
		wants func(client.Object) bool
	}
	every := func(client.Object) bool { return true }
	loops := []loop{
		{&clusterv1.MachineHealthCheckList{}, w.healthCheck(), every},
		{&controlplanev1.KubeadmControlPlaneList{}, w.controlPlane(), every},
		{&clusterv1.MachineSetList{}, w.machineSet(), every},
		{&clusterv1.MachineList{}, w.machine(), func(o client.Object) bool { return o.GetDeletionTimestamp() != nil }},
	}
	seen := -1
	for ; w.since() < float64(given.Seconds); time.Sleep(look) {
		w.lose(ctx)
		if seen == w.writes && !w.busy && !w.asked() {
			continue
		}
		seen = w.writes
		w.provide(ctx)
		for _, each := range loops {
			must(w.management.List(ctx, each.list))
			items, err := meta.ExtractList(each.list)
			must(err)
			for _, item := range items {
				obj := item.(client.Object)
				key := client.ObjectKeyFromObject(obj)
				id := fmt.Sprintf("%T %s", obj, key)
				if !each.wants(obj) || !w.due(id) {
					continue
				}
				written := w.writes
				result, err := each.owner.Reconcile(ctx, ctrl.Request{NamespacedName: key})
				if err != nil {
					debug("%.0f %s: %v", w.since(), id, err)
					result.RequeueAfter = look
				}
				w.last[id] = turn{written, result.RequeueAfter, time.Now(), w.wait[key]}
				delete(w.wait, key)
			}
		}
		w.read(ctx)
	}
	return w.owned
}

func newWorld(given *Owners) *world {
	w := &world{
		given: given, began: time.Now(), scheme: runtime.NewScheme(), nodes: map[string]*node{},
		wait: map[client.ObjectKey]time.Time{}, last: map[string]turn{}, applied: applied{},
		owned: &Owned{Deleted: map[string]float64{}, Gone: map[string]float64{}, Said: map[string]string{}},
	}
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, policyv1.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme,
		bootstrapv1.AddToScheme,
	} {
		must(add(w.scheme))
	}
	management, nodes := []client.Object{}, []client.Object{}
	for _, each := range given.Objects {
		var obj client.Object = &unstructured.Unstructured{Object: integers(each).(map[string]any)}
		gvk := obj.GetObjectKind().GroupVersionKind()
		if typed, err := w.scheme.New(gvk); err == nil {
			must(runtime.DefaultUnstructuredConverter.FromUnstructured(each, typed))
			obj = typed.(client.Object)
		}
		if gvk.Kind != "Node" && gvk.Kind != "Namespace" {
			management = append(management, obj)
			continue
		}
		nodes = append(nodes, obj)
		if gvk.Kind != "Node" {
			continue
		}
		pods := &Drain{Pods: given.Pods[obj.GetName()]}
		w.nodes[obj.GetName()] = &node{given: pods, began: w.began, evicted: map[string]metav1.Time{}}
		if _, master := obj.GetLabels()["node-role.kubernetes.io/control-plane"]; master {
			w.members = append(w.members, obj.GetName())
		}
	}
	status := []client.Object{
		&clusterv1.MachineHealthCheck{}, &clusterv1.Machine{}, &clusterv1.MachineSet{}, &clusterv1.MachineDeployment{},
		&clusterv1.Cluster{}, &controlplanev1.KubeadmControlPlane{},
	}
	w.management = w.counted(fake.NewClientBuilder().WithScheme(w.scheme).WithObjects(management...).WithStatusSubresource(status...).
		WithReturnManagedFields().Build())
	byProvider := func(obj client.Object) []string { return []string{obj.(*corev1.Node).Spec.ProviderID} }
	w.workload = interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(w.scheme).WithObjects(nodes...).WithStatusSubresource(&corev1.Node{}).
			WithIndex(&corev1.Node{}, index.NodeProviderIDField, byProvider).Build(),
		interceptor.Funcs{List: w.list, SubResourceCreate: w.evict, Delete: w.deleteNode},
	)
	return w
}

// due returns whether a controller looks at an object again: something has changed since, or it has asked for that.
func (w *world) due(id string) bool {
	last, known := w.last[id]
	asked := last.asks > 0 && time.Since(last.at) >= last.asks
	return !known || (time.Now().After(last.wait) && (asked || last.written != w.writes))
}

// asked returns whether a controller has asked for a reconcile that is due.
func (w *world) asked() bool {
	for id, last := range w.last {
		if w.due(id) || (last.written != w.writes && last.wait.After(time.Now())) {
			return true
		}
	}
	return false
}

func (w *world) since() float64 { return time.Since(w.began).Seconds() }

// --- the controllers -------------------------------------------------------------------------------------------------

func (w *world) healthCheck() reconcile.Reconciler {
	made := &machinehealthcheck.Reconciler{Client: w.management, ClusterCache: w.cache("machinehealthcheck-watchClusterNodes")}
	set(made, "recorder", record.EventRecorder(&record.FakeRecorder{}))
	logger := logr.Discard()
	set(made, "predicateLog", &logger)
	return made
}

func (w *world) machineSet() reconcile.Reconciler {
	made := &machineset.Reconciler{
		Client: w.management, APIReader: w.management, ClusterCache: w.cache(),
		PreflightChecks: sets.New(clusterv1.MachineSetPreflightCheckAll),
	}
	w.complete(made)
	return made
}

func (w *world) controlPlane() reconcile.Reconciler {
	made := &kubeadmcontrolplane.Reconciler{
		Client: w.management, APIReader: w.management, SecretCachingClient: w.management, ClusterCache: w.cache(),
		RemoteConditionsGracePeriod: 5 * time.Minute,
	}
	w.complete(made)
	set(made, "managementCluster", w.managementCluster())
	return made
}

// complete sets the private fields that only the registration with a manager would set.
func (w *world) complete(made any) {
	set(made, "controller", capicontroller.Controller(w))
	set(made, "recorder", record.EventRecorder(&record.FakeRecorder{}))
	set(made, "machineClientWithDeleteResponse", deleter{w.management})
	set(made, "ssaCache", w.applied)
	set(made, "disableRemoveManagedFieldsForLabelsAndAnnotations", true)
}

func (w *world) machine() reconcile.Reconciler {
	made := &machine.Reconciler{
		Client: w.management, APIReader: w.management, ClusterCache: w.cache("machine-watchNodes"),
		RemoteConditionsGracePeriod: 5 * time.Minute,
	}
	logger := logr.Discard()
	set(made, "controller", capicontroller.Controller(w))
	set(made, "recorder", record.EventRecorder(&record.FakeRecorder{}))
	set(made, "externalTracker", external.ObjectTracker{
		Controller: w, Cache: noIndex{}, Scheme: w.scheme, PredicateLogger: &logger,
	})
	set(made, "predicateLog", &logger)
	set(made, "nodeDeletionRetryTimeout", 10*time.Second)
	return made
}

// cache is the connection to the workload cluster, which never fails.
func (w *world) cache(watches ...string) clustercache.ClusterCache {
	key := client.ObjectKey{Namespace: w.clusterKey().Namespace, Name: w.clusterKey().Name}
	return connected{clustercache.NewFakeClusterCache(w.workload, key, watches...)}
}

func (w *world) clusterKey() client.ObjectKey {
	clusters := &clusterv1.ClusterList{}
	must(w.management.List(context.Background(), clusters))
	return client.ObjectKeyFromObject(&clusters.Items[0])
}

type connected struct{ clustercache.ClusterCache }

func (connected) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{LastProbeTime: time.Now(), LastProbeSuccessTime: time.Now()}
}

type deleter struct{ client.Client }

func (d deleter) Delete(ctx context.Context, obj client.Object, options ...client.DeleteOption) (client.Object, error) {
	return nil, d.Client.Delete(ctx, obj, options...)
}

// applied remembers what controllers have applied, so that they do not apply it again.
type applied map[string]bool

func (a applied) Add(what string)                { a[what] = true }
func (a applied) Has(what string, _ string) bool { return a[what] }

func (w *world) Watch(source.Source) error { return nil }

func (w *world) DeferNextReconcileForObject(obj metav1.Object, after time.Time) {
	w.wait[client.ObjectKey{Namespace: obj.GetNamespace(), Name: obj.GetName()}] = after
}

func (w *world) DeferNextReconcileUntilCacheUpToDate(metav1.Object, capicontroller.GroupVersionKindType, string) {
}

// --- helpers ---------------------------------------------------------------------------------------------------------

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// set assigns a private field of a controller.
func set(object any, name string, value any) {
	field := reflect.ValueOf(object).Elem().FieldByName(name)
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}

// integers turns the numbers of encoding/json into int64, as the API server's own decoder does.
func integers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = integers(value[key])
		}
	case []any:
		for i := range value {
			value[i] = integers(value[i])
		}
	case float64:
		if whole := int64(value); float64(whole) == value {
			return whole
		}
	}
	return value
}
