package main

import (
	"math/rand"
	"sync"
	"time"

	k8sv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
)

// Moment is what the API server would list at some time of a run.
type Moment struct {
	Seconds    float64                               `json:"seconds"` // since the beginning
	Time       metav1.Time                           `json:"time"`
	Nodes      []*k8sv1.Node                         `json:"nodes"`
	Pods       []*k8sv1.Pod                          `json:"pods"`
	VMIs       []*v1.VirtualMachineInstance          `json:"vmis"`
	Migrations []*v1.VirtualMachineInstanceMigration `json:"migrations"`
}

// camera keeps a random sample of all moments: one of those after each write, and of those between two ticks.
type camera struct {
	lock   sync.Mutex
	world  *world
	chance *rand.Rand
	size   int
	of     map[string]*sample
}

// sample is a reservoir: each moment offered to it stays with the same probability.
type sample struct {
	offered int
	kept    []Moment
}

// newCamera returns nil if a case wants no moments.
func newCamera(w *world) *camera {
	if w.given.Moments == 0 {
		return nil
	}
	return &camera{
		world: w, chance: rand.New(rand.NewSource(w.given.Seed)), size: w.given.Moments,
		of: map[string]*sample{"write": {}, "time": {}},
	}
}

// offer may keep this moment.
func (c *camera) offer(kind string) {
	if c == nil {
		return
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	found := c.of[kind]
	found.offered++
	place := len(found.kept)
	if place == c.size {
		if place = c.chance.Intn(found.offered); place >= c.size {
			return
		}
		found.kept[place] = c.world.look()
		return
	}
	found.kept = append(found.kept, c.world.look())
}

// watchTime offers a moment between any two ticks.
func (c *camera) watchTime() {
	if c == nil {
		return
	}
	time.Sleep(tick / 2)
	for {
		c.offer("time")
		time.Sleep(tick)
	}
}

func (c *camera) moments() []Moment {
	if c == nil {
		return []Moment{}
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	return append(c.of["write"].kept, c.of["time"].kept...)
}

// look lists everything as it is stored now.
func (w *world) look() Moment {
	core, virt := w.stores[0], w.stores[1]
	nodes := listed[*k8sv1.Node](core, k8sv1.SchemeGroupVersion.WithResource("nodes"), "Node")
	return Moment{
		Seconds:    w.now(),
		Time:       metav1.Now(),
		Nodes:      nodes,
		Pods:       listed[*k8sv1.Pod](core, k8sv1.SchemeGroupVersion.WithResource("pods"), "Pod"),
		VMIs:       listed[*v1.VirtualMachineInstance](virt, v1.SchemeGroupVersion.WithResource("virtualmachineinstances"), "VirtualMachineInstance"),
		Migrations: listed[*v1.VirtualMachineInstanceMigration](virt, v1.SchemeGroupVersion.WithResource("virtualmachineinstancemigrations"), "VirtualMachineInstanceMigration"),
	}
}

func listed[T runtime.Object](from *tracker, gvr gvr, kind string) []T {
	list, err := from.ObjectTracker.List(gvr, gvr.GroupVersion().WithKind(kind), metav1.NamespaceAll)
	if err != nil {
		panic(err)
	}
	found := []T{}
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		obj = obj.DeepCopyObject()
		obj.GetObjectKind().SetGroupVersionKind(gvr.GroupVersion().WithKind(kind))
		found = append(found, obj.(T))
		return nil
	})
	if err != nil {
		panic(err)
	}
	return found
}
