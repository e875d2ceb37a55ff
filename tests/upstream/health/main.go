// health answers for health checks, remediators and node maintenance as the API server and Cluster API do.
//
// One case a line on standard input, one answer a line on standard output, both JSON. The argument is the folder with
// the CustomResourceDefinitions. An object passes the same steps as a request to create it: pruning, defaults and
// validation of the API server (schema.go), then the webhook of Cluster API (capi.go). What its controller would do in
// the given cluster comes from a whole reconcile on the fake client of its own unit tests.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Case is an object that is created, or updated if Old is set, in a cluster.
type Case struct {
	Object  map[string]any   `json:"object"`
	Old     map[string]any   `json:"old"`
	Cluster []map[string]any `json:"cluster"`
}

// Answer is what upstream's code says about a case.
type Answer struct {
	Rejected []string       `json:"rejected"` // why the API server or the webhook refuses the object
	Stored   map[string]any `json:"stored"`   // the object after pruning and defaults
	Selector string         `json:"selector"` // why the selector cannot be used; empty if it can
	Selected []string       `json:"selected"` // the objects of the cluster that the stored selector matches
	Checked  *Checked       `json:"checked"`  // what the controller of Cluster API does; null for other kinds
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(klog.Background())
	definitions, err := load(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		given := Case{}
		if err := json.Unmarshal(in.Bytes(), &given); err != nil {
			log.Fatalf("not a case: %v", err)
		}
		if err := out.Encode(definitions.answer(&given)); err != nil {
			log.Fatal(err)
		}
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}

func (d definitions) answer(given *Case) *Answer {
	obj := &unstructured.Unstructured{Object: integers(given.Object).(map[string]any)}
	answer := &Answer{Rejected: d.create(obj), Stored: obj.Object}
	if len(answer.Rejected) > 0 {
		return answer
	}
	answer.Selector, answer.Selected = selected(obj, given.Cluster)
	if gvk := obj.GroupVersionKind(); gvk.Group == "cluster.x-k8s.io" && gvk.Kind == "MachineHealthCheck" {
		answer.Rejected, answer.Checked = capi(obj, given)
	}
	return answer
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
