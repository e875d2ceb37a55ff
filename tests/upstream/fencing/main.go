// fencing runs FenceAgentsRemediation's own reconciler and executor on one node, and answers what they did and when.
//
// One case a line on standard input, one answer a line on standard output, both JSON. Ours are the API server (store.go),
// the NodeHealthCheck, which creates, annotates and deletes the remediation, and the fence agent (agent.go). The agent is a
// function in virtual time, or with "real" a script that the operator starts as a process in real time.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"log"
	"os"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Case is a node and its remediation, which is created at the beginning. Times are seconds since then.
type Case struct {
	Objects     []map[string]any `json:"objects"` // the node, its namespaces and pods, and Secrets
	Remediation map[string]any   `json:"remediation"`
	Agent       Agent            `json:"agent"`
	Do          []Action         `json:"do"`
	Seconds     float64          `json:"seconds"` // of the whole run
	Real        bool             `json:"real"`
}

// Agent is how the fence agent acts.
type Agent struct {
	Needs []string `json:"needs"` // parameters without which it fails at once
	Calls []Call   `json:"calls"` // one after the other; the last one counts for all later ones
}

// Call is one run of the agent.
type Call struct {
	Takes float64 `json:"takes"` // seconds
	Fails bool    `json:"fails"`
}

// Action is one of "timed out", "deleted", "operator restarts", "node deleted", and "created", which has an object.
type Action struct {
	At     float64        `json:"at"`
	What   string         `json:"what"`
	Object map[string]any `json:"object"`
}

// Answer is what the operator did.
type Answer struct {
	Refused     string         `json:"refused"` // why the operator's webhook rejects the template; empty: it does not
	Runs        []Run          `json:"runs"`
	States      []State        `json:"states"`      // each differs from the one before it
	Remediation map[string]any `json:"remediation"` // at the end; null: it is gone
}

// Run is one start of the agent.
type Run struct {
	At         float64  `json:"at"`
	Parameters []string `json:"parameters"`
}

// State is what the API server shows.
type State struct {
	At         float64           `json:"at"`
	Finalizer  bool              `json:"finalizer"`
	Taints     []string          `json:"taints"` // key:effect
	Pods       int               `json:"pods"`
	Conditions map[string]string `json:"conditions"` // status and reason by type
	Gone       bool              `json:"gone"`       // the remediation
}

func main() {
	logger := logr.Discard()
	if os.Getenv("FENCING_LOG") != "" {
		logger = funcr.New(func(prefix, line string) { log.Println(prefix, line) }, funcr.Options{})
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(logger)
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
			if given.Real {
				answer = run(&given)
			} else {
				synctest.Test(t, func(*testing.T) { answer = run(&given) })
			}
			if err := out.Encode(answer); err != nil {
				log.Fatal(err)
			}
		}
	}
	everything := func(string, string) (bool, error) { return true, nil }
	testing.Main(everything, []testing.InternalTest{{Name: "cases", F: each}}, nil, nil)
}
