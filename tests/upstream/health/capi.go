package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/core/webhooks/conversion"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Checked is the outcome of reconciling a MachineHealthCheck of Cluster API.
type Checked struct {
	Error      string   `json:"error"`
	Paused     bool     `json:"paused"`
	Targets    []string `json:"targets"`    // the machines that it counts
	Healthy    []string `json:"healthy"`    // the others use up the limit
	AllHealthy int      `json:"allHealthy"` // all of them: without a template that it can read it marks none
	Allowed    bool     `json:"allowed"`    // whether the limit lets it act
	Remediated []string `json:"remediated"` // the machines that it asks to remediate
}

var scheme = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
}

// capi returns why the webhook refuses a health check, and otherwise what the controller does with it.
func capi(obj *unstructured.Unstructured, given *Case) ([]string, *Checked) {
	ctx, webhook := context.Background(), &admission.MachineHealthCheck{}
	check, err := hub(obj.Object)
	if err != nil {
		return []string{err.Error()}, nil
	}
	if err := webhook.Default(ctx, check); err != nil {
		return []string{err.Error()}, nil
	}
	if given.Old == nil {
		_, err = webhook.ValidateCreate(ctx, check)
	} else {
		old, wrong := hub(integers(given.Old).(map[string]any))
		if wrong != nil {
			return []string{wrong.Error()}, nil
		}
		_, err = webhook.ValidateUpdate(ctx, old, check)
	}
	if err != nil {
		return []string{err.Error()}, nil
	}
	checked, err := reconcile(ctx, check, given.Cluster)
	if err != nil {
		checked.Error = err.Error()
	}
	return []string{}, checked
}

// hub returns a health check in the version that the webhook and the controller read.
func hub(obj map[string]any) (*clusterv1.MachineHealthCheck, error) {
	check := &clusterv1.MachineHealthCheck{}
	if obj["apiVersion"] == clusterv1.GroupVersion.String() {
		return check, runtime.DefaultUnstructuredConverter.FromUnstructured(obj, check)
	}
	older := &clusterv1beta1.MachineHealthCheck{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj, older); err != nil {
		return nil, err
	}
	return check, conversion.ConvertMachineHealthCheckV1Beta1ToHub(context.Background(), older, check)
}

func reconcile(ctx context.Context, check *clusterv1.MachineHealthCheck, cluster []map[string]any) (*Checked, error) {
	checked := &Checked{}
	management, workload, err := clients(check, cluster)
	if err != nil {
		return checked, err
	}
	owner := client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName}
	reconciler := &machinehealthcheck.Reconciler{
		Client:       management,
		ClusterCache: clustercache.NewFakeClusterCache(workload, owner, "machinehealthcheck-watchClusterNodes"),
	}
	var recorder record.EventRecorder = record.NewFakeRecorder(1000)
	set(reconciler, "recorder", &recorder)
	logger := new(logr.Discard())
	set(reconciler, "predicateLog", &logger)
	key := client.ObjectKeyFromObject(check)
	for range 3 { // the first pass sets the condition Paused and asks for another
		if _, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err != nil {
			return checked, err
		}
	}
	if err := management.Get(ctx, key, check); err != nil {
		return checked, err
	}
	checked.Paused = conditions.IsTrue(check, clusterv1.PausedCondition)
	checked.Targets = check.Status.Targets
	checked.AllHealthy = int(ptr.Deref(check.Status.CurrentHealthy, 0))
	checked.Allowed = conditions.IsTrue(check, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	return checked, checked.read(ctx, management, check)
}

// clients returns a client of the management cluster and one of the workload cluster, which has the nodes.
func clients(check *clusterv1.MachineHealthCheck, cluster []map[string]any) (client.Client, client.Client, error) {
	check.ResourceVersion = ""
	management, nodes := []client.Object{check}, []client.Object{}
	for _, each := range cluster {
		obj := &unstructured.Unstructured{Object: integers(each).(map[string]any)}
		gvk := obj.GroupVersionKind()
		typed, err := scheme.New(gvk)
		if err != nil { // templates and requests of remediators
			management = append(management, obj)
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, typed); err != nil {
			return nil, nil, err
		}
		if gvk.Kind == "Node" {
			nodes = append(nodes, typed.(client.Object))
		} else {
			management = append(management, typed.(client.Object))
		}
	}
	status := []client.Object{&clusterv1.MachineHealthCheck{}, &clusterv1.Machine{}, &clusterv1.Cluster{}}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(management...).WithStatusSubresource(status...).Build(),
		fake.NewClientBuilder().WithScheme(scheme).WithObjects(nodes...).Build(), nil
}

// read notes the state of the machines after a reconcile.
func (c *Checked) read(ctx context.Context, management client.Client, check *clusterv1.MachineHealthCheck) error {
	machines := &clusterv1.MachineList{}
	if err := management.List(ctx, machines, client.InNamespace(check.Namespace)); err != nil {
		return err
	}
	template := check.Spec.Remediation.TemplateRef
	for i := range machines.Items {
		machine := &machines.Items[i]
		if !slices.Contains(c.Targets, machine.Name) {
			continue
		}
		if conditions.IsTrue(machine, clusterv1.MachineHealthCheckSucceededCondition) {
			c.Healthy = append(c.Healthy, machine.Name)
		}
		remediated := conditions.Get(machine, clusterv1.MachineOwnerRemediatedCondition)
		if template.IsDefined() {
			remediated = conditions.Get(machine, clusterv1.MachineExternallyRemediatedCondition)
		}
		if remediated != nil && remediated.Status == metav1.ConditionFalse {
			c.Remediated = append(c.Remediated, machine.Name)
		}
	}
	return nil
}

// set assigns a private field of the controller that only its registration with a manager would set.
func set[T any](object any, name string, value *T) {
	field := reflect.ValueOf(object).Elem().FieldByName(name)
	if !field.IsValid() || field.Type() != reflect.TypeFor[T]() {
		panic(fmt.Sprintf("no field %s of this type", name))
	}
	*(*T)(unsafe.Pointer(field.UnsafeAddr())) = *value
}
