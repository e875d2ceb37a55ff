package main

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"unsafe"

	admissionv1 "k8s.io/api/admission/v1"
	k8sv1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	kubevirtlog "kubevirt.io/client-go/log"

	"kubevirt.io/kubevirt/pkg/defaults"
	instancetype "kubevirt.io/kubevirt/pkg/instancetype/controller/vm"
	netadmitter "kubevirt.io/kubevirt/pkg/network/admitter"
	"kubevirt.io/kubevirt/pkg/network/vmispec"
	storagetypes "kubevirt.io/kubevirt/pkg/storage/types"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/mutating-webhook/mutators"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/validating-webhook/admitters"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/topology"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/vm"
	virthandler "kubevirt.io/kubevirt/pkg/virt-handler"
)

// calculateLiveMigrationCondition is virt-handler's; it is not exported.
//
//go:linkname calculateLiveMigrationCondition kubevirt.io/kubevirt/pkg/virt-handler.(*VirtualMachineController).calculateLiveMigrationCondition
func calculateLiveMigrationCondition(*virthandler.VirtualMachineController, *v1.VirtualMachineInstance) (*v1.VirtualMachineInstanceCondition, bool)

// calculateLiveStorageMigrationCondition names all reasons but those of disks; it is not exported either.
//
//go:linkname calculateLiveStorageMigrationCondition kubevirt.io/kubevirt/pkg/virt-handler.(*VirtualMachineController).calculateLiveStorageMigrationCondition
func calculateLiveStorageMigrationCondition(*virthandler.VirtualMachineController, *v1.VirtualMachineInstance) *v1.VirtualMachineInstanceCondition

type mutator interface {
	Mutate(*admissionv1.AdmissionReview) *admissionv1.AdmissionResponse
}

type admitter interface {
	Admit(context.Context, *admissionv1.AdmissionReview) *admissionv1.AdmissionResponse
}

// start admits a VM and returns the VMI that the VM controller would create, or nil.
func (c *cluster) start(subject json.RawMessage, result *Result) json.RawMessage {
	informers := &webhooks.Informers{DataSourceInformer: informer(nil), NamespaceInformer: informer(nil)}
	stored, admission := admit(subject, webhooks.VirtualMachineGroupVersionResource,
		mutators.NewVMsMutator(c.config, c), admitters.NewVMsAdmitter(c.config, c, informers, nil))
	result.VM = admission
	if stored == nil {
		return nil
	}
	owner := &v1.VirtualMachine{}
	must(json.Unmarshal(stored, owner))
	admission.Spec = c.causesOf(owner.Spec.DeepCopy())
	if !admission.Allowed {
		return nil
	}
	vmi, err := c.vmiOf(owner)
	if err != nil {
		result.Start = err.Error()
		return nil
	}
	text, err := json.Marshal(vmi)
	must(err)
	return text
}

// causesOf validates a spec as the admitter does, which may end before it comes to that. Without the defaults it cannot.
func (c *cluster) causesOf(spec *v1.VirtualMachineSpec) []metav1.StatusCause {
	if err := defaults.SetDefaultVirtualMachineInstanceSpec(c.config, &spec.Template.Spec); err != nil {
		return nil
	}
	return append([]metav1.StatusCause{}, admitters.ValidateVirtualMachineSpec(field.NewPath("spec"), spec, c.config, false)...)
}

// vmiOf follows (*vm.Controller).startVMI, which needs a controller with all its informers.
func (c *cluster) vmiOf(owner *v1.VirtualMachine) (*v1.VirtualMachineInstance, error) {
	types := instancetype.New(nil, nil, nil, nil, nil, c, c.config, record.NewFakeRecorder(100))
	vmi := vm.SetupVMIFromVM(owner)
	if err := types.ApplyAutoAttachPreferences(owner, vmi); err != nil {
		return nil, err
	}
	vm.AutoAttachInputDevice(vmi)
	if err := vmispec.SetDefaultNetworkInterface(c.config, &vmi.Spec); err != nil {
		return nil, err
	}
	if err := types.ApplyToVMI(owner, vmi); err != nil {
		return nil, err
	}
	causes := netadmitter.NewValidator(field.NewPath("spec"), &vmi.Spec, c.config).ValidateCreation()
	return vmi, errorOf(causes)
}

// create admits a VMI.
func (c *cluster) create(subject json.RawMessage, result *Result) {
	stored, admission := admit(subject, webhooks.VirtualMachineInstanceGroupVersionResource,
		&mutators.VMIsMutator{ClusterConfig: c.config, VMIPresetInformer: informer(&v1.VirtualMachineInstancePreset{})},
		&admitters.VMICreateAdmitter{ClusterConfig: c.config, SpecValidators: []admitters.SpecValidator{validateNetworks}})
	result.VMI = admission
	if admission.Allowed {
		result.Running = &v1.VirtualMachineInstance{}
		must(json.Unmarshal(stored, result.Running))
	}
}

func validateNetworks(path *field.Path, spec *v1.VirtualMachineInstanceSpec, config *virtconfig.ClusterConfig) []metav1.StatusCause {
	return netadmitter.Validate(path, spec, config)
}

// admit sends an object through the two webhooks of its kind, and returns what would be stored.
func admit(subject json.RawMessage, resource metav1.GroupVersionResource, mutator mutator, admitter admitter) (json.RawMessage, *Admission) {
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Resource: resource, Object: runtime.RawExtension{Raw: subject},
	}}
	response := mutator.Mutate(review)
	if !response.Allowed {
		return nil, admissionOf(response)
	}
	stored := patched(subject, response.Patch)
	review.Request.Object.Raw = stored
	return stored, admissionOf(admitter.Admit(context.Background(), review))
}

// patched applies the patches of KubeVirt's webhooks, which replace whole fields of the object.
func patched(subject json.RawMessage, patch []byte) json.RawMessage {
	object, steps := map[string]json.RawMessage{}, []struct {
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}{}
	must(json.Unmarshal(subject, &object))
	if len(patch) > 0 {
		must(json.Unmarshal(patch, &steps))
	}
	for _, step := range steps {
		object[step.Path[1:]] = step.Value
	}
	text, err := json.Marshal(object)
	must(err)
	return text
}

func admissionOf(response *admissionv1.AdmissionResponse) *Admission {
	admission := &Admission{Allowed: response.Allowed}
	if response.Result != nil {
		admission.Message = response.Result.Message
		if response.Result.Details != nil {
			admission.Causes = response.Result.Details.Causes
		}
	}
	return admission
}

// schedule writes the status that virt-controller writes before and after a VMI has its pod.
func (c *cluster) schedule(given *Case, vmi *v1.VirtualMachineInstance) {
	vmi.Status.NodeName, vmi.Status.Phase = "here", v1.Running
	hints, _, err := topology.NewTopologyHinter(c.nodes, c.vmis, c.config).TopologyHintsForVMI(vmi)
	if err == nil {
		vmi.Status.TopologyHints = hints
	}
	for _, name := range given.Migrated {
		vmi.Status.MigratedVolumes = append(vmi.Status.MigratedVolumes, v1.StorageMigratedVolumeInfo{VolumeName: name})
	}
	for i := range vmi.Spec.Volumes {
		volume := &vmi.Spec.Volumes[i]
		status := v1.VolumeStatus{Name: volume.Name}
		if claim := c.claims[vmi.Namespace+"/"+storagetypes.PVCNameFromVirtVolume(volume)]; claim != nil {
			status.PersistentVolumeClaimInfo = &v1.PersistentVolumeClaimInfo{ClaimName: claim.Name, AccessModes: claim.Spec.AccessModes}
		}
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, status)
	}
}

// conditions returns the two conditions that virt-handler computes for a VMI on a node with a known host model.
func (c *cluster) conditions(vmi *v1.VirtualMachineInstance) (*v1.VirtualMachineInstanceCondition, *v1.VirtualMachineInstanceCondition) {
	base := &virthandler.BaseController{}
	set(base, "clusterConfig", c.config)
	set(base, "logger", kubevirtlog.Log)
	handler := &virthandler.VirtualMachineController{BaseController: base}
	set(handler, "hostCpuModel", "Skylake")
	condition, _ := calculateLiveMigrationCondition(handler, vmi)
	return condition, calculateLiveStorageMigrationCondition(handler, vmi)
}

// set writes a field that is not exported.
func set(object any, name string, value any) {
	place := reflect.ValueOf(object).Elem().FieldByName(name)
	reflect.NewAt(place.Type(), unsafe.Pointer(place.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}

// evict asks virt-api whether the launcher pod of a VMI may be evicted.
func (c *cluster) evict(vmi *v1.VirtualMachineInstance) *Eviction {
	pod := &k8sv1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "launcher", Namespace: vmi.Namespace, Labels: map[string]string{v1.AppLabel: "virt-launcher"},
			Annotations: map[string]string{v1.DomainAnnotation: vmi.Name},
		},
		Spec: k8sv1.PodSpec{NodeName: vmi.Status.NodeName},
	}
	must(c.core.Tracker().Add(pod))
	must(c.virt.Tracker().Add(vmi))
	text, err := json.Marshal(&policyv1.Eviction{ObjectMeta: pod.ObjectMeta})
	must(err)
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		Name: pod.Name, Namespace: pod.Namespace, Object: runtime.RawExtension{Raw: text},
	}}
	response := admitters.NewPodEvictionAdmitter(c.config, c.core, c.virt).Admit(context.Background(), review)
	after, err := c.virt.KubevirtV1().VirtualMachineInstances(vmi.Namespace).Get(context.Background(), vmi.Name, metav1.GetOptions{})
	must(err)
	return &Eviction{Allowed: response.Allowed, Marked: after.Status.EvacuationNodeName != ""}
}

func errorOf(causes []metav1.StatusCause) error {
	if len(causes) == 0 {
		return nil
	}
	return errors.New(causes[0].Message)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
