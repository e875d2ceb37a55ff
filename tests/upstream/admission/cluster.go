package main

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	k8sv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"
	cdiclient "kubevirt.io/client-go/containerizeddataimporter"
	cdifake "kubevirt.io/client-go/containerizeddataimporter/fake"
	"kubevirt.io/client-go/kubecli"
	kubevirtfake "kubevirt.io/client-go/kubevirt/fake"
	instancetypeclient "kubevirt.io/client-go/kubevirt/typed/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
)

// cluster answers KubeVirt's code with the objects of a case.
type cluster struct {
	kubecli.KubevirtClient
	config *virtconfig.ClusterConfig
	core   *fake.Clientset
	virt   *kubevirtfake.Clientset
	cdi    *cdifake.Clientset
	nodes  cache.Indexer
	vmis   cache.Indexer
	claims map[string]*k8sv1.PersistentVolumeClaim // by namespace/name

	volumes []*cdiv1.DataVolume
}

func (c *cluster) CoreV1() coreclient.CoreV1Interface { return c.core.CoreV1() }
func (c *cluster) AppsV1() appsclient.AppsV1Interface { return c.core.AppsV1() }
func (c *cluster) CdiClient() cdiclient.Interface     { return c.cdi }

func (c *cluster) VirtualMachineInstancetype(namespace string) instancetypeclient.VirtualMachineInstancetypeInterface {
	return c.virt.InstancetypeV1beta1().VirtualMachineInstancetypes(namespace)
}

func (c *cluster) VirtualMachineClusterInstancetype() instancetypeclient.VirtualMachineClusterInstancetypeInterface {
	return c.virt.InstancetypeV1beta1().VirtualMachineClusterInstancetypes()
}

func (c *cluster) VirtualMachinePreference(namespace string) instancetypeclient.VirtualMachinePreferenceInterface {
	return c.virt.InstancetypeV1beta1().VirtualMachinePreferences(namespace)
}

func (c *cluster) VirtualMachineClusterPreference() instancetypeclient.VirtualMachineClusterPreferenceInterface {
	return c.virt.InstancetypeV1beta1().VirtualMachineClusterPreferences()
}

func clusterOf(given *Case, config *virtconfig.ClusterConfig) (*cluster, error) {
	c := &cluster{config: config, nodes: store(), vmis: store(), claims: map[string]*k8sv1.PersistentVolumeClaim{}}
	var core, virt, cdi []runtime.Object
	for _, raw := range given.Objects {
		object, err := decode(raw)
		if err != nil {
			return nil, err
		}
		switch object := object.(type) {
		case *k8sv1.Node:
			c.nodes.Add(object)
		case *v1.VirtualMachineInstance:
			c.vmis.Add(object)
		case *k8sv1.PersistentVolumeClaim:
			c.claims[object.Namespace+"/"+object.Name] = object
			core = append(core, object)
		case *cdiv1.DataVolume:
			c.volumes = append(c.volumes, object)
		case *cdiv1.DataSource:
			cdi = append(cdi, object)
		case *appsv1.ControllerRevision:
			core = append(core, object)
		default:
			virt = append(virt, object)
		}
	}
	c.core, c.virt, c.cdi = fake.NewSimpleClientset(core...), kubevirtfake.NewSimpleClientset(virt...), cdifake.NewSimpleClientset(cdi...)
	return c, nil
}

func decode(raw json.RawMessage) (runtime.Object, error) {
	meta := metav1.TypeMeta{}
	if err := json.Unmarshal(raw, &meta); err != nil {
		return nil, err
	}
	makers := map[string]runtime.Object{
		"Node":                              &k8sv1.Node{},
		"PersistentVolumeClaim":             &k8sv1.PersistentVolumeClaim{},
		"ControllerRevision":                &appsv1.ControllerRevision{},
		"DataSource":                        &cdiv1.DataSource{},
		"DataVolume":                        &cdiv1.DataVolume{},
		"VirtualMachineInstance":            &v1.VirtualMachineInstance{},
		"VirtualMachineInstancetype":        &instancetypev1beta1.VirtualMachineInstancetype{},
		"VirtualMachineClusterInstancetype": &instancetypev1beta1.VirtualMachineClusterInstancetype{},
		"VirtualMachinePreference":          &instancetypev1beta1.VirtualMachinePreference{},
		"VirtualMachineClusterPreference":   &instancetypev1beta1.VirtualMachineClusterPreference{},
	}
	object, known := makers[meta.Kind]
	if !known {
		return nil, fmt.Errorf("unknown kind %q", meta.Kind)
	}
	return object, json.Unmarshal(raw, object)
}

func store() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

func informer(object runtime.Object) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{}, object, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}
