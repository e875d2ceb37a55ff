// machines runs what OpenShift and Cluster API do with the Machine of a dead node, in virtual time.
//
// One case a line on standard input, one answer a line on standard output, both JSON. Real are OpenShift's MachineHealthCheck
// (health_check.go), its drain controller with the rate limiter (openshift.go), the drain of Cluster API (capi.go), and its
// controllers for MachineHealthChecks, MachineSets, KubeadmControlPlanes and Machines (owners.go). Ours is the API server,
// which answers evictions as KubeVirt's webhook does, the deletion of pods by the taint of their node, the provider of
// infrastructure (provider.go), and what KubeadmControlPlane sees of etcd (etcd.go).
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	nodeName  = "dead"
	namespace = "shop"
)

// Case is one of these.
type Case struct {
	Drain  *Drain  `json:"drain"`
	Check  *Check  `json:"check"`
	Owners *Owners `json:"owners"`
}

// Drain is a dead node whose Machine is being deleted. Times are seconds since the drain began.
type Drain struct {
	Pods    []Pod `json:"pods"`
	Seconds int   `json:"seconds"`
}

// Pod is on the node.
type Pod struct {
	Name    string `json:"name"`
	Refused bool   `json:"refused"` // whether KubeVirt refuses its eviction
	Deleted *int   `json:"deleted"` // when its node's taint deletes it; nil: never
	Grace   int64  `json:"grace"`
}

// Answer is when the drains ended (nil: never), or when which Machines were deleted.
type Answer struct {
	Openshift *float64           `json:"openshift"`
	CAPI      *float64           `json:"capi"`
	Deleted   map[string]float64 `json:"deleted"`
	Owned     *Owned             `json:"owned,omitempty"`
}

func main() {
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"})
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(logr.Discard())
	out := json.NewEncoder(os.Stdout)
	os.Stdout = os.Stderr // what the testing package prints does not belong to the answers
	each := func(t *testing.T) {
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(nil, 1<<24)
		for in.Scan() {
			given, answer := Case{}, Answer{}
			if err := json.Unmarshal(in.Bytes(), &given); err != nil {
				log.Fatalf("not a case: %v", err)
			}
			switch {
			case given.Drain != nil:
				synctest.Test(t, func(*testing.T) { answer.Openshift = openshift(newNode(given.Drain)) })
				synctest.Test(t, func(*testing.T) { answer.CAPI = capi(newNode(given.Drain)) })
			case given.Owners != nil:
				synctest.Test(t, func(*testing.T) { answer.Owned = owners(given.Owners) })
			default:
				synctest.Test(t, func(*testing.T) { answer.Deleted = check(given.Check) })
			}
			if err := out.Encode(answer); err != nil {
				log.Fatal(err)
			}
		}
	}
	everything := func(string, string) (bool, error) { return true, nil }
	testing.Main(everything, []testing.InternalTest{{Name: "cases", F: each}}, nil, nil)
}

// node is the dead node with its pods, of which none ever ends: no kubelet confirms it.
type node struct {
	given    *Drain
	began    time.Time
	lock     sync.Mutex
	cordoned bool
	evicted  map[string]metav1.Time // the deletion times by evictions
}

func newNode(given *Drain) *node {
	return &node{given: given, began: time.Now(), evicted: map[string]metav1.Time{}}
}

func (n *node) since() float64 { return time.Since(n.began).Seconds() }

func (n *node) ended() bool { return n.since() >= float64(n.given.Seconds) }

func (n *node) object() *corev1.Node {
	n.lock.Lock()
	defer n.lock.Unlock()
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Spec: corev1.NodeSpec{Unschedulable: n.cordoned, Taints: []corev1.Taint{{
			Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute,
		}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		}}},
	}
}

func (n *node) cordon() {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.cordoned = true
}

// pods returns them as of now, with the deletion time that the API server computes.
func (n *node) pods() []corev1.Pod {
	n.lock.Lock()
	defer n.lock.Unlock()
	found := []corev1.Pod{}
	for _, each := range n.given.Pods {
		pod := corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: each.Name, Namespace: namespace, UID: "uid"},
			Spec:       corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "compute"}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
		if each.Deleted != nil && n.since() >= float64(*each.Deleted) {
			at := metav1.NewTime(n.began.Add(time.Duration(int64(*each.Deleted)+each.Grace) * time.Second))
			pod.DeletionTimestamp = &at
		}
		if at, evicted := n.evicted[each.Name]; evicted && (pod.DeletionTimestamp == nil || at.Before(pod.DeletionTimestamp)) {
			pod.DeletionTimestamp = &at
		}
		found = append(found, pod)
	}
	return found
}

// evict answers as the API server does with KubeVirt's webhook in front.
func (n *node) evict(name string, grace int64) error {
	n.lock.Lock()
	defer n.lock.Unlock()
	for _, each := range n.given.Pods {
		if each.Name == name && each.Refused {
			return apierrors.NewTooManyRequestsError("Eviction triggered evacuation of VMI \"" + namespace + "/" + name + "\"")
		}
	}
	if _, known := n.evicted[name]; !known {
		n.evicted[name] = metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))
	}
	return nil
}

// debug writes what a controller says to standard error if the environment asks for that.
func debug(format string, values ...any) {
	if os.Getenv("DEBUG") != "" {
		fmt.Fprintf(os.Stderr, format+"\n", values...)
	}
}
