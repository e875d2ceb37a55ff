package main

import (
	"context"
	"encoding/json"
	_ "unsafe" // for linkname

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"

	instancetype "kubevirt.io/kubevirt/pkg/instancetype/controller/vm"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/mutating-webhook/mutators"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/validating-webhook/admitters"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch/vm"
	volumemigration "kubevirt.io/kubevirt/pkg/virt-controller/watch/volume-migration"
)

// syncRestartRequired is the VM controller's; it is not exported.
//
//go:linkname syncRestartRequired kubevirt.io/kubevirt/pkg/virt-controller/watch/vm.(*Controller).syncRestartRequired
func syncRestartRequired(*vm.Controller, *v1.VirtualMachineSpec, *v1.VirtualMachine, *v1.VirtualMachineInstance) bool

// Update is what KubeVirt makes of a changed VM that runs.
type Update struct {
	VM      *Admission `json:"vm"`
	Restart bool       `json:"restart"`           // whether the VM gets the condition RestartRequired
	Volumes string     `json:"volumes,omitempty"` // why the VM controller does not copy its changed volumes
}

// update answers for a case whose subject replaces an old object. Running is the VMI that the old one started.
func (c *cluster) update(given *Case, result *Result) {
	result.Update = &Update{}
	informers := &webhooks.Informers{DataSourceInformer: informer(nil), NamespaceInformer: informer(nil)}
	old := c.mutate(given.Old, given.Old, result)
	stored := c.mutate(given.Subject, old, result)
	if stored == nil {
		return
	}
	response := admitters.NewVMsAdmitter(c.config, c, informers, nil).Admit(context.Background(), updateOf(stored, old))
	result.Update.VM = admissionOf(response)
	if !response.Allowed {
		return
	}
	before, after, running := &v1.VirtualMachine{}, &v1.VirtualMachine{}, &v1.VirtualMachineInstance{}
	must(json.Unmarshal(old, before))
	must(json.Unmarshal(stored, after))
	must(json.Unmarshal(given.Running, running))
	controller := &vm.Controller{}
	set(controller, "clusterConfig", c.config)
	set(controller, "instancetypeController", instancetype.New(nil, nil, nil, nil, nil, c, c.config, record.NewFakeRecorder(100)))
	result.Update.Restart = syncRestartRequired(controller, &before.Spec, after, running)
	if volumemigration.PersistentVolumesUpdated(&after.Spec.Template.Spec, &running.Spec) {
		result.Update.Volumes = c.refusedVolumes(after, running)
	}
}

// mutate returns a VM with the defaults of virt-api, or nil.
func (c *cluster) mutate(subject, old json.RawMessage, result *Result) json.RawMessage {
	response := mutators.NewVMsMutator(c.config, c).Mutate(updateOf(subject, old))
	result.Update.VM = admissionOf(response)
	if !response.Allowed {
		return nil
	}
	return patched(subject, response.Patch)
}

func updateOf(subject, old json.RawMessage) *admissionv1.AdmissionReview {
	return &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, Resource: webhooks.VirtualMachineGroupVersionResource,
		Object: runtime.RawExtension{Raw: subject}, OldObject: runtime.RawExtension{Raw: old},
	}}
}

// refusedVolumes follows (*vm.Controller).handleVolumeUpdateRequest: both validations come before the copy.
func (c *cluster) refusedVolumes(after *v1.VirtualMachine, running *v1.VirtualMachineInstance) string {
	claims, volumes := store(), store()
	for _, claim := range c.claims {
		must(claims.Add(claim))
	}
	for _, volume := range c.volumes {
		must(volumes.Add(volume))
	}
	if err := volumemigration.ValidateVolumes(running, after, volumes, claims); err != nil {
		return err.Error()
	}
	copied, err := volumemigration.GenerateMigratedVolumes(claims, running, after)
	if err == nil {
		err = volumemigration.ValidateVolumesUpdateMigration(running, after, copied)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
