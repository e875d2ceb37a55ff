// migrations runs KubeVirt's evacuation and migration controllers over one cluster.
//
// One case on standard input, one result on standard output, both JSON. The controllers are the real ones with their
// usual informers. What they talk to is ours: a kubelet and a virt-handler that start pods and end migrations after the
// given seconds (node.go), and a roll-out that cordons, evicts as `kubectl drain` does, waits and uncordons (rollout.go).
//
// Without flags they run with kube-scheduler on the fake clients of their own unit tests (cluster.go), in a
// testing/synctest bubble: time-outs of minutes pass at once, in the order in which they would really pass. With
// -kubeconfig they run in real time on an API server with kube-scheduler (live.go).
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

	k8sv1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	v1 "kubevirt.io/api/core/v1"
	kubevirtlog "kubevirt.io/client-go/log"
)

// Case is a cluster, and how its nodes are updated.
type Case struct {
	KubeVirt v1.KubeVirt                 `json:"kubevirt"`
	Nodes    []k8sv1.Node                `json:"nodes"`
	VMIs     []v1.VirtualMachineInstance `json:"vmis"`
	Pods     []k8sv1.Pod                 `json:"pods"` // on the nodes; the launcher pods of the VMIs are added
	Seconds  map[string]int              `json:"seconds"`
	Pools    []Pool                      `json:"pools"`
	Reboot   int                         `json:"reboot"`
	Deadline int                         `json:"deadline"` // seconds after which the roll-out is given up

	Stall         int    `json:"stall"`         // seconds without progress after which the roll-out is given up; 0: never
	Unschedulable int    `json:"unschedulable"` // seconds that a target pod may be unschedulable; 0: KubeVirt's default
	Namespace     string `json:"namespace"`     // of the VMIs, where an API server holds several clusters
	Selector      string `json:"selector"`      // of the nodes of this cluster, where an API server holds several

	Moments   int                  `json:"moments"`   // so many random moments after a write, and so many between ticks
	Seed      int64                `json:"seed"`      // of these moments
	Behaviour map[string]Behaviour `json:"behaviour"` // of VMIs that do not just migrate
	Requests  []Request            `json:"requests"`
}

// Pool has nodes that are updated in this order, so many at the same time.
type Pool struct {
	Nodes    []string `json:"nodes"`
	Capacity int      `json:"capacity"`
}

// Result is what happened, in seconds since the beginning.
type Result struct {
	VMIs       []v1.VirtualMachineInstance `json:"vmis"` // with KubeVirt's defaults, at the beginning
	Pods       []k8sv1.Pod                 `json:"pods"` // at the beginning
	Migrations []Migration                 `json:"migrations"`
	Started    map[string]float64          `json:"started"`
	Ended      map[string]float64          `json:"ended"`
	Emptied    map[string]float64          `json:"emptied"`
	Where      map[string]string           `json:"where"` // the node of each VMI at the end
	Moments    []Moment                    `json:"moments"`
	Seconds    float64                     `json:"seconds"` // of the whole run
	Gone       map[string]float64          `json:"gone"`    // when the old pods of VMIs ended
}

// Migration is one VirtualMachineInstanceMigration. A time that never came is -1.
type Migration struct {
	UID     string  `json:"uid"`
	VMI     string  `json:"vmi"`
	Source  string  `json:"source"`
	Target  string  `json:"target"`
	Created float64 `json:"created"`
	Pod     float64 `json:"pod"` // when its target pod was created: from then on it counts for the limits
	Bound   float64 `json:"bound"`
	Ended   float64 `json:"ended"`
	Phase   string  `json:"phase"`

	Phases map[string]float64 `json:"phases"` // when it came into each
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "run in real time on this API server")
	flag.Parse()
	logs := io.Discard
	if os.Getenv("MIGRATIONS_LOG") != "" {
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
	if *kubeconfig != "" {
		c, err := liveClient(*kubeconfig, given.Selector)
		if err != nil {
			log.Fatal(err)
		}
		answer(out, &given, c)
	}
	// The first call starts a goroutine of the runtime, which must not belong to the bubble.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	bubble := func(t *testing.T) {
		synctest.Test(t, func(*testing.T) { answer(out, &given, fakeClient()) })
	}
	everything := func(pattern, name string) (bool, error) { return regexp.MatchString(pattern, name) }
	testing.Main(everything, []testing.InternalTest{{Name: "cluster", F: bubble}}, nil, nil)
}

// answer runs a case, writes its result and exits, because the controllers never end.
func answer(out io.Writer, given *Case, c *client) {
	result, err := run(given, c)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(out).Encode(result); err != nil {
		log.Fatal(err)
	}
	os.Exit(0)
}
