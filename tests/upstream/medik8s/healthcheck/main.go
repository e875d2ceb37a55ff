// healthcheck runs Medik8s' node-healthcheck-operator over a cluster that loses nodes, in virtual time.
//
// One case a line on standard input, one answer a line on standard output, both JSON. The reconciler is the real one, on
// the fake client of controller-runtime. Ours are the Nodes, which turn Unknown when the case says so, and remediators
// that do nothing: a remediation stays until the check gives it up. The package of the reconciler is internal, so this
// file is built as a part of a checkout of the operator (tests/upstream/medik8s.py).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"os"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	machinev1 "github.com/openshift/api/machine/v1beta1"

	"github.com/medik8s/node-healthcheck-operator/api/v1alpha1"
	internal "github.com/medik8s/node-healthcheck-operator/internal/controller"
	"github.com/medik8s/node-healthcheck-operator/internal/controller/cluster"
	"github.com/medik8s/node-healthcheck-operator/internal/controller/resources"
)

// Case is a cluster with one health check. Times are seconds since the beginning.
type Case struct {
	Objects   []map[string]any `json:"objects"`   // Nodes, the NodeHealthCheck, templates, what is on OpenShift
	Unknown   map[string]int   `json:"unknown"`   // when the Ready condition of a node becomes Unknown
	Openshift bool             `json:"openshift"` // whether etcd is guarded
	Seconds   int              `json:"seconds"`
}

// Answer is what the operator did.
type Answer struct {
	Created []Created `json:"created"`
	Reasons []string  `json:"reasons"` // of the Events, each once
	Error   string    `json:"error"`
}

// Created is a remediation that the operator has asked for.
type Created struct {
	Node string  `json:"node"`
	Kind string  `json:"kind"`
	At   float64 `json:"at"`
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(logr.Discard())
	flag.Parse()
	out := json.NewEncoder(os.Stdout)
	os.Stdout = os.Stderr // what the testing package prints is no answer
	each := func(t *testing.T) {
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(nil, 1<<24)
		for in.Scan() {
			given, answer := Case{}, Answer{}
			if err := json.Unmarshal(in.Bytes(), &given); err != nil {
				log.Fatalf("not a case: %v", err)
			}
			synctest.Test(t, func(*testing.T) { answer = run(&given) })
			if err := out.Encode(answer); err != nil {
				log.Fatal(err)
			}
		}
	}
	everything := func(string, string) (bool, error) { return true, nil }
	testing.Main(everything, []testing.InternalTest{{Name: "cases", F: each}}, nil, nil)
}

// --- what the reconciler is given ----------------------------------------------------------------------------------

// quiet is a cluster that is not upgraded, has no MachineHealthChecks, and needs no watches.
type quiet struct{}

func (quiet) Check([]corev1.Node) (bool, error)                                    { return false, nil }
func (quiet) Start(context.Context) error                                          { return nil }
func (quiet) UpdateStatus(context.Context) error                                   { return nil }
func (quiet) NeedDisableNHC() bool                                                 { return false }
func (quiet) NeedIgnoreNode(*corev1.Node) bool                                     { return false }
func (quiet) AddWatchesNhc(resources.Manager, *v1alpha1.NodeHealthCheck) error     { return nil }
func (quiet) AddWatchesMhc(resources.Manager, *machinev1.MachineHealthCheck) error { return nil }
func (quiet) SetController(controller.Controller)                                  {}

// reasons keeps those of Events.
type reasons map[string]bool

func (r reasons) Event(_ runtime.Object, _, reason, _ string)            { r[reason] = true }
func (r reasons) Eventf(_ runtime.Object, _, reason, _ string, _ ...any) { r[reason] = true }
func (r reasons) AnnotatedEventf(_ runtime.Object, _ map[string]string, _, reason, _ string, _ ...any) {
	r[reason] = true
}

var _ record.EventRecorder = reasons{}

// world is the cluster of one case.
type world struct {
	client.Client
	kinds   []schema.GroupVersionKind // of remediations
	check   types.NamespacedName
	created map[types.UID]Created
	began   time.Time
}

func newWorld(given *Case) (*world, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme, v1alpha1.AddToScheme, machinev1.Install, configv1.Install, policyv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	w := &world{created: map[types.UID]Created{}, began: time.Now()}
	objects := []client.Object{}
	for _, each := range given.Objects {
		obj := &unstructured.Unstructured{Object: each}
		gvk := obj.GroupVersionKind()
		if gvk.Kind == "NodeHealthCheck" {
			w.check = client.ObjectKeyFromObject(obj)
		}
		if strings.HasSuffix(gvk.Kind, "Template") {
			made := gvk.GroupVersion().WithKind(strings.TrimSuffix(gvk.Kind, "Template"))
			for _, kind := range []schema.GroupVersionKind{gvk, made} {
				if !scheme.Recognizes(kind) {
					scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
					scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
				}
			}
			w.kinds = append(w.kinds, made)
			objects = append(objects, obj)
			continue
		}
		typed, err := scheme.New(gvk)
		if err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(each, typed); err != nil {
			return nil, err
		}
		objects = append(objects, typed.(client.Object))
	}
	mapper := clientMapper(scheme)
	w.Client = fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).
		WithObjects(objects...).WithStatusSubresource(&v1alpha1.NodeHealthCheck{}).Build()
	return w, nil
}

// moment is how long a reconcile takes at least. Without it a time-out would end in the very moment in which it is asked
// for, and one that has to be over would be looked at again much later.
const moment = time.Millisecond

// --- the run -------------------------------------------------------------------------------------------------------

func run(given *Case) Answer {
	ctx := context.Background()
	w, err := newWorld(given)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	seen := reasons{}
	reconciler := &internal.NodeHealthCheckReconciler{
		Client: w, Log: logr.Discard(), Recorder: seen, ClusterUpgradeStatusChecker: quiet{}, MHCChecker: quiet{},
		Capabilities: cluster.Capabilities{IsOnOpenshift: given.Openshift, IsSupportedControlPlaneTopology: true},
		WatchManager: quiet{},
	}
	failed := map[string]bool{}
	for next := time.Duration(0); w.since() < given.Seconds; {
		time.Sleep(min(next, w.untilNodes(given)) + moment)
		if err := w.loseNodes(ctx, given); err != nil {
			return Answer{Error: err.Error()}
		}
		result, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: w.check})
		next = result.RequeueAfter
		if err != nil {
			failed[err.Error()] = true
			next = time.Second
		}
		if next == 0 {
			next = time.Duration(given.Seconds) * time.Second
		}
		if err := w.note(ctx); err != nil {
			return Answer{Error: err.Error()}
		}
	}
	answer := Answer{Created: []Created{}, Reasons: []string{}}
	for _, each := range w.created {
		answer.Created = append(answer.Created, each)
	}
	sort.Slice(answer.Created, func(i, j int) bool {
		a, b := answer.Created[i], answer.Created[j]
		return a.At < b.At || (a.At == b.At && a.Node < b.Node)
	})
	for reason := range seen {
		answer.Reasons = append(answer.Reasons, reason)
	}
	sort.Strings(answer.Reasons)
	for text := range failed {
		answer.Error = text
	}
	return answer
}

func (w *world) since() int { return int(time.Since(w.began) / time.Second) }

// untilNodes returns how long it is until the next node turns Unknown.
func (w *world) untilNodes(given *Case) time.Duration {
	left := time.Duration(given.Seconds)*time.Second - time.Since(w.began)
	for _, at := range given.Unknown {
		if wait := time.Duration(at)*time.Second - time.Since(w.began); wait > 0 {
			left = min(left, wait)
		}
	}
	return max(left, 0)
}

func (w *world) loseNodes(ctx context.Context, given *Case) error {
	for name, at := range given.Unknown {
		node := &corev1.Node{}
		if err := w.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
			return err
		}
		for i := range node.Status.Conditions {
			ready := &node.Status.Conditions[i]
			if ready.Type == corev1.NodeReady && ready.Status != corev1.ConditionUnknown && w.since() >= at {
				ready.Status, ready.LastTransitionTime = corev1.ConditionUnknown, metav1.Now()
				if err := w.Status().Update(ctx, node); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// note records the remediations that are new.
func (w *world) note(ctx context.Context) error {
	for _, kind := range w.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := w.List(ctx, list); err != nil {
			return err
		}
		for _, each := range list.Items {
			name := types.UID(kind.Kind + "/" + each.GetNamespace() + "/" + each.GetName())
			if _, known := w.created[name]; !known {
				w.created[name] = Created{Node: each.GetName(), Kind: kind.Kind, At: time.Since(w.began).Seconds()}
			}
		}
	}
	return nil
}

// clientMapper knows the scope of each kind of a scheme.
func clientMapper(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if kind.Kind == "Node" || kind.Kind == "NodeHealthCheck" || kind.Kind == "ClusterVersion" {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	return mapper
}
