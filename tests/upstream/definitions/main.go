// definitions prints the CustomResourceDefinitions of KubeVirt, one a line, as virt-operator creates them
// (kubevirt.io/kubevirt: pkg/virt-operator/resource/generate/components/crds.go).
package main

import (
	"encoding/json"
	"log"
	"os"

	_ "github.com/openshift/api/machine/v1beta1" // its definitions are files, read by definitions.py
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
)

func main() {
	out := json.NewEncoder(os.Stdout)
	for _, create := range []func() (*v1.CustomResourceDefinition, error){
		components.NewKubeVirtCrd,
		components.NewMigrationPolicyCrd,
		components.NewReplicaSetCrd,
		components.NewVirtualMachineClusterInstancetypeCrd,
		components.NewVirtualMachineClusterPreferenceCrd,
		components.NewVirtualMachineCrd,
		components.NewVirtualMachineInstanceCrd,
		components.NewVirtualMachineInstanceMigrationCrd,
		components.NewVirtualMachineInstancetypeCrd,
		components.NewVirtualMachinePoolCrd,
		components.NewVirtualMachinePreferenceCrd,
	} {
		definition, err := create()
		if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(definition); err != nil {
			log.Fatal(err)
		}
	}
}
