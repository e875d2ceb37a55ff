// admission prints what KubeVirt decides about VMs: one case a line in, one result a line out, both JSON.
//
// It links KubeVirt's own code: the webhooks of virt-api, the functions by which the VM controller creates a VMI,
// virt-controller's topology hints, virt-handler's migration condition and the webhook for evictions. cluster.go has
// the fake clients, controllers.go what the controllers do between the webhooks, updates.go what becomes of a changed VM.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"slices"

	k8sv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	kubevirtlog "kubevirt.io/client-go/log"

	"kubevirt.io/kubevirt/pkg/testutils"
	"kubevirt.io/kubevirt/pkg/util/migrations"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
)

// Case is a VM or a VMI as a user writes it, and the objects of its cluster.
type Case struct {
	KubeVirt v1.KubeVirt       `json:"kubevirt"`
	Objects  []json.RawMessage `json:"objects"`
	Subject  json.RawMessage   `json:"subject"`
	Migrated []string          `json:"migrated"` // volumes that a volume migration copies now
	Reported string            `json:"reported"` // overrides the status of LiveMigratable before the eviction
	Old      json.RawMessage   `json:"old"`      // the VM that the subject replaces; then nothing is started
	Running  json.RawMessage   `json:"running"`  // the VMI of the old VM
}

// Result is what KubeVirt does with the object, step by step. Later steps are missing if an earlier one fails.
type Result struct {
	Valid     bool                       `json:"valid"` // whether KubeVirt uses the given configuration
	Gates     map[string]bool            `json:"gates"`
	VM        *Admission                 `json:"vm,omitempty"`
	Start     string                     `json:"start,omitempty"` // why the VM controller cannot create the VMI
	VMI       *Admission                 `json:"vmi,omitempty"`
	Running   *v1.VirtualMachineInstance `json:"running,omitempty"`
	Condition *Condition                 `json:"condition,omitempty"`
	Strategy  *v1.EvictionStrategy       `json:"strategy,omitempty"`
	Eviction  *Eviction                  `json:"eviction,omitempty"`
	Update    *Update                    `json:"update,omitempty"`
	Crash     string                     `json:"crash,omitempty"` // the step in which KubeVirt's code panics
}

// Admission is what the webhooks of virt-api make of an object that is created.
type Admission struct {
	Allowed bool                 `json:"allowed"`
	Message string               `json:"message,omitempty"`
	Causes  []metav1.StatusCause `json:"causes,omitempty"`
	Spec    []metav1.StatusCause `json:"spec"` // of the function that validates the spec, whatever precedes it
}

// Condition is LiveMigratable as virt-handler computes it.
type Condition struct {
	Status k8sv1.ConditionStatus `json:"status"`
	Reason string                `json:"reason,omitempty"`
	Others string                `json:"others,omitempty"` // the message of StorageLiveMigratable, with all reasons but disks
}

// Eviction is the answer to the eviction of the launcher pod.
type Eviction struct {
	Allowed bool `json:"allowed"`
	Marked  bool `json:"marked"` // for an evacuation
}

func main() {
	kubevirtlog.Log.SetIOWriter(io.Discard)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		given := Case{}
		if err := json.Unmarshal(in.Bytes(), &given); err != nil {
			log.Fatalf("not a case: %v", err)
		}
		if err := json.NewEncoder(out).Encode(answer(&given)); err != nil {
			log.Fatal(err)
		}
		out.Flush()
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}

func answer(given *Case) *Result {
	config, _, _ := testutils.NewFakeClusterConfigUsingKV(&given.KubeVirt)
	result := &Result{Gates: gates(config), Valid: slices.Equal(config.GetSupportedAgentVersions(), given.KubeVirt.Spec.Configuration.SupportedGuestAgentVersions)}
	cluster, err := clusterOf(given, config)
	if err != nil {
		log.Fatalf("not a case: %v", err)
	}
	if len(given.Old) > 0 {
		result.step("an update", func() { cluster.update(given, result) })
		return result
	}
	meta := metav1.TypeMeta{}
	if err := json.Unmarshal(given.Subject, &meta); err != nil {
		log.Fatalf("not a case: %v", err)
	}
	vmi := given.Subject
	if meta.Kind == "VirtualMachine" {
		vmi = nil
		result.step("virt-api", func() { vmi = cluster.start(given.Subject, result) })
	}
	if vmi != nil && result.Crash == "" {
		result.step("virt-api", func() { cluster.create(vmi, result) })
	}
	if result.Running != nil {
		result.step("virt-handler", func() { cluster.run(given, result) })
	}
	return result
}

// step runs a step, and notes the component if it panics.
func (result *Result) step(component string, run func()) {
	defer func() {
		if crash := recover(); crash != nil {
			result.Crash = fmt.Sprintf("%s: %v", component, crash)
		}
	}()
	run()
}

func gates(config *virtconfig.ClusterConfig) map[string]bool {
	return map[string]bool{
		"DECENTRALIZED_LIVE_MIGRATION": config.DecentralizedLiveMigrationEnabled(),
		"REBOOT_POLICY":                config.RebootPolicyEnabled(),
		"HYPERV_STRICT_CHECK":          config.HypervStrictCheckEnabled(),
		"IMAGE_VOLUME":                 config.ImageVolumeEnabled(),
		"ALIGN_CPUS":                   config.AlignCPUsEnabled(),
		"CONFIGURABLE_HYPERVISOR":      config.ConfigurableHypervisorEnabled(),
	}
}

// run does what happens to a VMI on its node: the migration condition, then an eviction.
func (cluster *cluster) run(given *Case, result *Result) {
	vmi := result.Running
	cluster.schedule(given, vmi)
	condition, storage := cluster.conditions(vmi)
	if given.Reported != "" {
		condition.Status = k8sv1.ConditionStatus(given.Reported)
	}
	result.Condition = &Condition{Status: condition.Status, Reason: condition.Reason, Others: storage.Message}
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{*condition}
	result.Strategy = migrations.VMIEvictionStrategy(cluster.config, vmi)
	result.Eviction = cluster.evict(vmi)
}
