// restarts runs KubeVirt's controllers for VMs over one cluster that loses nodes, and answers which VMIs came when.
//
// One case on standard input, one result on standard output, both JSON. The controllers are the real ones with their
// usual informers: those of VMs, VMIs, nodes, replica sets and pools. Ours are the API server's finalizers and
// graceful deletion (store.go), the kubelets and virt-handlers (world.go), and what happens to the pods of lost nodes
// (actions.go). All of it runs in a testing/synctest bubble, where minutes pass at once.
package main

import (
	"encoding/json"
	"io"
	"log"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"testing"
	"testing/synctest"

	"k8s.io/klog/v2"
	v1 "kubevirt.io/api/core/v1"
	kubevirtlog "kubevirt.io/client-go/log"
)

// Case is a cluster: each guest has a node of its own, which is lost, and one other node stays. Times are seconds.
type Case struct {
	KubeVirt v1.KubeVirt `json:"kubevirt"`
	Guests   []Guest     `json:"guests"`
	Lost     float64     `json:"lost"`    // when the nodes are lost
	Seconds  float64     `json:"seconds"` // of the whole run
}

// Guest is a VM, a VMI, or a pool or replica set of one.
type Guest struct {
	Name    string          `json:"name"` // also the value of the label "guest" of its VMIs
	Kind    string          `json:"kind"`
	Object  json.RawMessage `json:"object"`
	Fails   int             `json:"fails"`   // so many first starts fail
	Reaches string          `json:"reaches"` // the phase of its VMI when its node is lost: Running or Scheduled
	Do      []Action        `json:"do"`
}

// Action happens to a guest.
type Action struct {
	At   float64 `json:"at"` // seconds since the loss; less than 0: before it
	What string  `json:"what"`
}

// Result is the cluster when the nodes were lost, and what was there of each guest in the whole run.
type Result struct {
	Objects []any      `json:"objects"`
	VMIs    []*VMISeen `json:"vmis"`
	Pods    []*PodSeen `json:"pods"`
}

// VMISeen is one VMI. A time that never came is -1; all are seconds since the loss.
type VMISeen struct {
	Guest   string  `json:"guest"`
	UID     string  `json:"uid"`
	Created float64 `json:"created"`
	Failed  float64 `json:"failed"`
	Gone    float64 `json:"gone"`
}

// PodSeen is one launcher pod.
type PodSeen struct {
	Guest       string  `json:"guest"`
	VMI         string  `json:"vmi"` // its UID
	Node        string  `json:"node"`
	Terminating float64 `json:"terminating"`
	Gone        float64 `json:"gone"`
}

func main() {
	logs := io.Discard
	if os.Getenv("RESTARTS_LOG") != "" {
		logs = os.Stderr
	}
	kubevirtlog.Log.SetIOWriter(logs)
	klog.LogToStderr(false)
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
