// copies prints the claims that CDI makes for DataVolumes: one case a line in, one result a line out, both JSON.
//
// It links CDI's own code: the function by which its controllers and its webhook render the spec of a claim, and the
// usable space of a file system, into which its importer writes the disk.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"log"
	"os"
	"strconv"
	_ "unsafe" // for linkname

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"context"

	cc "kubevirt.io/containerized-data-importer/pkg/controller/common"
	_ "kubevirt.io/containerized-data-importer/pkg/controller/datavolume" // has renderPvcSpec
	"kubevirt.io/containerized-data-importer/pkg/util"
)

//go:linkname renderPvcSpec kubevirt.io/containerized-data-importer/pkg/controller/datavolume.renderPvcSpec
func renderPvcSpec(client.Client, record.EventRecorder, logr.Logger, *cdiv1.DataVolume, *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaimSpec, error)

// Case is a DataVolume and its cluster.
type Case struct {
	Config   cdiv1.CDIConfig          `json:"config"`
	Classes  []storagev1.StorageClass `json:"classes"`
	Profiles []cdiv1.StorageProfile   `json:"profiles"`
	Volume   cdiv1.DataVolume         `json:"volume"`
}

// Result is what CDI makes of it.
type Result struct {
	Claim  *v1.PersistentVolumeClaimSpec `json:"claim,omitempty"`
	Usable int64                         `json:"usable"` // bytes of the disk that fits into the claim
	Error  string                        `json:"error,omitempty"`
}

func main() {
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	decoder := json.NewDecoder(in)
	for {
		given := Case{}
		if err := decoder.Decode(&given); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(given.result()); err != nil {
			log.Fatal(err)
		}
	}
}

func (given *Case) result() *Result {
	reader := given.client()
	claim, err := renderPvcSpec(reader, record.NewFakeRecorder(100), logr.Discard(), &given.Volume, nil)
	if err != nil {
		return &Result{Error: err.Error()}
	}
	size := claim.Resources.Requests[v1.ResourceStorage]
	result := &Result{Claim: claim, Usable: size.Value()}
	if util.ResolveVolumeMode(claim.VolumeMode) == v1.PersistentVolumeFilesystem {
		overhead, err := cc.GetFilesystemOverheadForStorageClass(context.Background(), reader, claim.StorageClassName)
		if err != nil {
			return &Result{Error: err.Error()}
		}
		share, err := strconv.ParseFloat(string(overhead), 64)
		if err != nil {
			return &Result{Error: err.Error()}
		}
		result.Usable = util.GetUsableSpace(share, size.Value())
	}
	return result
}

// client returns a client that knows the objects of the case.
func (given *Case) client() client.Client {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, storagev1.AddToScheme, cdiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			log.Fatal(err)
		}
	}
	objects := []client.Object{&given.Config}
	for i := range given.Classes {
		objects = append(objects, &given.Classes[i])
	}
	for i := range given.Profiles {
		objects = append(objects, &given.Profiles[i])
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}
