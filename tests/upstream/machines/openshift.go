package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
	_ "unsafe" // for the private functions of the drain controller

	machinev1 "github.com/openshift/api/machine/v1beta1"
	_ "github.com/openshift/machine-api-operator/pkg/controller/machine"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

//go:linkname newDrainController github.com/openshift/machine-api-operator/pkg/controller/machine.newDrainController
func newDrainController(mgr manager.Manager) reconcile.Reconciler

//go:linkname newDrainRateLimiter github.com/openshift/machine-api-operator/pkg/controller/machine.newDrainRateLimiter
func newDrainRateLimiter() workqueue.TypedRateLimiter[reconcile.Request]

// openshift returns when the drain controller has said that the Machine is drained.
func openshift(n *node) *float64 {
	ctx := context.Background()
	scheme := runtime.NewScheme()
	if err := machinev1.Install(scheme); err != nil {
		panic(err)
	}
	now := metav1.Now()
	machine := &machinev1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name: "machine", Namespace: namespace, DeletionTimestamp: &now, Finalizers: []string{"machine.machine.openshift.io"},
		},
		Status: machinev1.MachineStatus{
			Phase: ptr.To(machinev1.PhaseDeleting), NodeRef: &corev1.ObjectReference{Kind: "Node", Name: nodeName},
		},
	}
	objects := fake.NewClientBuilder().WithScheme(scheme).WithObjects(machine).WithStatusSubresource(machine).Build()
	controller := newDrainController(stub{client: objects, scheme: scheme, config: &rest.Config{Transport: apiServer{n}}})
	limiter := newDrainRateLimiter()
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(machine)}
	for !n.ended() {
		result, err := controller.Reconcile(ctx, request)
		if err == nil && result.RequeueAfter == 0 {
			at := n.since()
			return &at
		}
		if err != nil {
			result.RequeueAfter = limiter.When(request)
		}
		time.Sleep(result.RequeueAfter)
	}
	return nil
}

// stub is the part of a manager that the controllers use.
type stub struct {
	manager.Manager
	client client.Client
	scheme *runtime.Scheme
	config *rest.Config
}

func (s stub) GetClient() client.Client                        { return s.client }
func (s stub) GetScheme() *runtime.Scheme                      { return s.scheme }
func (s stub) GetCache() cache.Cache                           { return noIndex{} }
func (s stub) GetConfig() *rest.Config                         { return s.config }
func (s stub) GetEventRecorderFor(string) record.EventRecorder { return &record.FakeRecorder{} }

// apiServer answers what kubectl's drain asks for.
type apiServer struct{ node *node }

func (a apiServer) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := a.answer(request)
	status := http.StatusOK
	if err != nil {
		found := &apierrors.StatusError{}
		if !errors.As(err, &found) {
			return nil, err
		}
		answer, status = found.Status(), int(found.Status().Code)
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: request,
	}, nil
}

func (a apiServer) answer(request *http.Request) (any, error) {
	path := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch last := path[len(path)-1]; {
	case request.URL.Path == "/api":
		return metav1.APIVersions{Versions: []string{"v1"}}, nil
	case request.URL.Path == "/apis":
		policy := metav1.GroupVersionForDiscovery{GroupVersion: "policy/v1", Version: "v1"}
		return metav1.APIGroupList{Groups: []metav1.APIGroup{{
			Name: "policy", Versions: []metav1.GroupVersionForDiscovery{policy}, PreferredVersion: policy,
		}}}, nil
	case request.URL.Path == "/api/v1":
		return metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{
			Name: "pods/eviction", Kind: "Eviction", Group: "policy", Version: "v1",
		}}}, nil
	case last == "eviction":
		asked := policyv1.Eviction{}
		if err := json.NewDecoder(request.Body).Decode(&asked); err != nil {
			return nil, err
		}
		return metav1.Status{Status: metav1.StatusSuccess}, a.node.evict(path[len(path)-2], *asked.DeleteOptions.GracePeriodSeconds)
	case last == "pods":
		return corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: a.node.pods()}, nil
	case len(path) > 1 && path[len(path)-2] == "pods":
		for _, pod := range a.node.pods() {
			if pod.Name == last {
				return pod, nil
			}
		}
	case len(path) > 1 && path[len(path)-2] == "nodes":
		if request.Method == http.MethodPatch {
			a.node.cordon()
		}
		return a.node.object(), nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("unknown"), request.URL.Path)
}
