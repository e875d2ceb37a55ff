// clocks runs Kubernetes' controllers for lost nodes over one cluster, and answers when they did what.
//
// One case on standard input, one result on standard output, both JSON. The controllers are the real ones with the
// timers of kube-controller-manager: node lifecycle, taint eviction, pod garbage collection, attach and detach. Ours are
// the kubelets that renew Leases until they are lost, the API server's graceful deletion, the CSI attacher, and what an
// administrator types (cluster.go). All of it runs in a testing/synctest bubble, where minutes pass at once.
package main

import (
	"encoding/json"
	"flag"
	"io"
	"log"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"testing"
	"testing/synctest"

	"k8s.io/klog/v2"
)

// Case is a cluster whose nodes are lost. Times are seconds since the beginning.
type Case struct {
	Nodes   []Node   `json:"nodes"`
	Pods    []Pod    `json:"pods"`
	Actions []Action `json:"actions"`
	Grace   float64  `json:"grace"`   // node-monitor-grace-period
	Leader  float64  `json:"leader"`  // when kube-controller-manager begins
	Seconds float64  `json:"seconds"` // of the whole run
}

// Node renews its Lease every ten seconds, until it is lost.
type Node struct {
	Name  string  `json:"name"`
	Zone  string  `json:"zone"`
	Phase float64 `json:"phase"` // when it renews first
	Lost  float64 `json:"lost"`  // 0: never
}

// Pod runs on a node. It has a copy on another node once its object is gone, as a VM that starts again.
type Pod struct {
	Name       string `json:"name"`
	Node       string `json:"node"`
	Tolerates  *int64 `json:"tolerates"` // seconds on an unreachable node; nil: for any time
	Grace      int64  `json:"grace"`
	Volume     string `json:"volume"`
	AccessMode string `json:"access_mode"`
	Next       string `json:"next"` // the node of the copy; empty: there is none
}

// Action is what an administrator or a remediator does to a node.
type Action struct {
	At   float64 `json:"at"`
	Node string  `json:"node"`
	What string  `json:"what"` // taint: out of service; delete: the Node
}

// Result is when things happened, by name. What never happened is missing.
type Result struct {
	Heartbeat map[string]float64 `json:"heartbeat"` // the last one of each node
	Unknown   map[string]float64 `json:"unknown"`   // Ready of a node
	Tainted   map[string]float64 `json:"tainted"`   // unreachable:NoExecute
	Deleted   map[string]float64 `json:"deleted"`   // the deletion of a pod is asked for
	Gone      map[string]float64 `json:"gone"`      // the object of a pod
	Detached  map[string]float64 `json:"detached"`  // "volume node"
	Attached  map[string]float64 `json:"attached"`  // "volume node"
}

func main() {
	logs := io.Discard
	if os.Getenv("CLOCKS_LOG") != "" {
		logs = os.Stderr
	}
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"})
	klog.SetOutput(logs)
	given := Case{}
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		log.Fatalf("not a case: %v", err)
	}
	out := os.Stdout
	os.Stdout = os.Stderr // what the testing package prints is not part of the result
	// The first call starts a goroutine of the runtime, which must not belong to the bubble.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	bubble := func(t *testing.T) {
		synctest.Test(t, func(*testing.T) {
			result, err := run(&given)
			if err == nil {
				err = json.NewEncoder(out).Encode(result)
			}
			if err != nil {
				log.Fatal(err)
			}
			os.Exit(0) // the controllers never end
		})
	}
	everything := func(pattern, name string) (bool, error) { return regexp.MatchString(pattern, name) }
	testing.Main(everything, []testing.InternalTest{{Name: "cluster", F: bubble}}, nil, nil)
}
