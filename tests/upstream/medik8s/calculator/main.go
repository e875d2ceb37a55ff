// calculator asks Medik8s' self-node-remediation how long a node is given to reboot.
//
// One case a line on standard input, one number of seconds a line on standard output. The package is internal, so this
// file is built as a part of a checkout of the operator (tests/upstream/medik8s.py).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/go-logr/logr"
	commonlabels "github.com/medik8s/common/pkg/labels"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/medik8s/self-node-remediation/api/v1alpha1"
	"github.com/medik8s/self-node-remediation/internal/reboot"
)

// Case is a configuration and a cluster.
type Case struct {
	Config      v1alpha1.SelfNodeRemediationConfig `json:"config"`
	Annotations map[string]string                  `json:"annotations"` // of the node that reboots
	Workers     int                                `json:"workers"`
}

// workers is a client that knows so many of them, which is all that is asked for.
type workers struct {
	client.Client
	number int
}

func (w workers) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for i := range w.number {
		list.(*corev1.NodeList).Items = append(list.(*corev1.NodeList).Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("w", i), Labels: map[string]string{commonlabels.WorkerRole: ""},
		}})
	}
	return nil
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		given := Case{}
		if err := json.Unmarshal(in.Bytes(), &given); err != nil {
			log.Fatalf("not a case: %v", err)
		}
		calculator := reboot.NewCalculator(workers{number: given.Workers}, logr.Discard())
		calculator.SetConfig(&given.Config)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w0", Annotations: given.Annotations}}
		took, err := calculator.GetRebootDuration(context.Background(), node)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(took.Seconds())
	}
}
