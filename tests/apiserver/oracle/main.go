// The filters of kube-scheduler as a filter program: clusters in, decisions out, one line of JSON each.
//
// It links the in-tree plugins and the default profile of pkg/scheduler. Pods pass through the defaults, changes and
// validation of the API server first, as a created pod does. Thousands of clusters take seconds, because nothing is
// started: the informers hold the objects of one cluster from the beginning.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// question is one line of the input.
type question struct {
	Namespaces     []*v1.Namespace
	Nodes          []*v1.Node
	Pods           []*v1.Pod // bound ones
	Volumes        []*v1.PersistentVolume
	Claims         []*v1.PersistentVolumeClaim
	CSINodes       []*storagev1.CSINode
	StorageClasses []*storagev1.StorageClass

	Place    []*v1.Pod // judged one by one, also what preemption could do for them
	Bind     []*v1.Pod // placed one after the other, each on the node that it names
	Together []*v1.Pod // is there any order and any choice of nodes that places all of them
}

// refusal says which plugin refuses a pod; the zero value: none.
type refusal struct {
	Plugin string `json:"plugin"`
	Reason string `json:"reason"`
}

// answer is one line of the output.
type answer struct {
	Invalid []string             `json:"invalid,omitempty"` // pods that the API server rejects
	Place   []map[string]refusal `json:"place"`             // refusals by node; nodes that accept are left out
	Preempt [][]string           `json:"preempt"`           // the nodes on which preemption would make room for the pod
	Bind    []*refusal           `json:"bind"`              // null: accepted
	Fits    *bool                `json:"fits"`
	Steps   int                  `json:"steps"` // placements tried for Fits
}

// nodes lets the plugins see the current snapshot, although they get their lister only once.
type nodes struct{ fwk.SharedLister }

// static is an informer that already has its objects, and hands them to a handler at once.
type static struct{ cache.SharedIndexInformer }

func (s static) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	for _, obj := range s.GetStore().List() {
		handler.OnAdd(obj, true)
	}
	return s.SharedIndexInformer.AddEventHandler(handler)
}

// unnominated knows no pod that waits for a node after preemption.
type unnominated struct{ fwk.PodNominator }

func (unnominated) NominatedPodsForNode(string) []fwk.PodInfo { return nil }

// cluster is one cluster and the scheduler's framework over it.
type cluster struct {
	framework.Framework
	preemption *defaultpreemption.DefaultPreemption
	nodes      *nodes
	listed     []*v1.Node
	pods       []*v1.Pod
}

var (
	ctx    = context.Background()
	client = fake.NewSimpleClientset()
)

// searchLimit bounds the placements that the exhaustive search tries.
const searchLimit = 20000

func main() {
	metrics.InitMetrics()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			log.Fatal(err)
		}
		given, err := reply(&asked)
		if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(given); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

func reply(asked *question) (*answer, error) {
	given := &answer{Place: []map[string]refusal{}, Preempt: [][]string{}, Bind: []*refusal{}}
	for _, pods := range [][]*v1.Pod{asked.Pods, asked.Place, asked.Bind, asked.Together} {
		for _, pod := range pods {
			if err := create(pod); err != nil {
				given.Invalid = append(given.Invalid, fmt.Sprintf("%s/%s: %v", pod.Namespace, pod.Name, err))
			}
		}
	}
	if given.Invalid != nil {
		return given, nil
	}
	c, err := newCluster(asked)
	if err != nil {
		return nil, err
	}
	for _, pod := range asked.Place {
		given.Place = append(given.Place, c.refusals(pod))
		given.Preempt = append(given.Preempt, c.preemptions(pod))
	}
	if asked.Together != nil {
		fits := c.search(asked.Together, &given.Steps)
		if fits || given.Steps < searchLimit {
			given.Fits = &fits
		}
	}
	for _, pod := range asked.Bind {
		free := pod.DeepCopy()
		free.Spec.NodeName = ""
		var refused *refusal
		if found, ok := c.refusals(free)[pod.Spec.NodeName]; ok {
			refused = &found
		}
		given.Bind = append(given.Bind, refused)
		c.see(append(c.pods, pod))
	}
	return given, nil
}

// create does to a pod what the API server does when the pod is created. Its status stays.
func create(pod *v1.Pod) error {
	if pod.UID == "" {
		pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
	}
	status := pod.Status
	legacyscheme.Scheme.Default(pod)
	internal := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		return err
	}
	podregistry.Strategy.PrepareForCreate(ctx, internal)
	if errs := podregistry.Strategy.Validate(ctx, internal); len(errs) > 0 {
		return errs.ToAggregate()
	}
	*pod = v1.Pod{}
	if err := legacyscheme.Scheme.Convert(internal, pod, nil); err != nil {
		return err
	}
	pod.Status = status
	return nil
}

func newCluster(asked *question) (*cluster, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	fill(factory, &v1.Namespace{}, asked.Namespaces)
	fill(factory, &v1.Node{}, asked.Nodes)
	fill(factory, &v1.Pod{}, asked.Pods)
	fill(factory, &v1.PersistentVolume{}, asked.Volumes)
	fill(factory, &v1.PersistentVolumeClaim{}, asked.Claims)
	fill(factory, &storagev1.CSINode{}, asked.CSINodes)
	fill(factory, &storagev1.StorageClass{}, asked.StorageClasses)

	c := &cluster{nodes: &nodes{}, listed: asked.Nodes}
	c.see(asked.Pods)
	configuration, err := latest.Default()
	if err != nil {
		return nil, err
	}
	// As in pkg/scheduler/scheduler.go#New.
	slices, err := tracker.StartTracker(ctx, tracker.Options{SliceInformer: factory.Resource().V1().ResourceSlices()})
	if err != nil {
		return nil, err
	}
	resourceClaims := assumecache.NewAssumeCache(
		klog.FromContext(ctx), factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	c.Framework, err = frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &configuration.Profiles[0],
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(c.nodes),
		frameworkruntime.WithPodNominator(unnominated{}),
		frameworkruntime.WithSharedDRAManager(dynamicresources.NewDRAManager(ctx, resourceClaims, slices, factory)),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
	)
	if err != nil {
		return nil, err
	}
	// Only to ask what it would do.
	everyNode := &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 100, MinCandidateNodesAbsolute: 100}
	c.preemption, err = defaultpreemption.New(ctx, everyNode, c.Framework, feature.Features{})
	return c, err
}

// fill makes the informer of a kind one that already has these objects, with the API server's defaults.
func fill[T runtime.Object](factory informers.SharedInformerFactory, kind T, objects []T) {
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, kind, 0, byNamespace)
	for _, obj := range objects {
		legacyscheme.Scheme.Default(obj)
		if err := informer.GetStore().Add(obj); err != nil {
			log.Fatal(err)
		}
	}
	factory.InformerFor(kind, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return static{informer} })
}

// see makes these the bound pods. Ended ones never reach kube-scheduler (pkg/scheduler/scheduler.go#newPodInformer),
// and it lists no node for those that name an unknown one (backend/cache/cache.go#UpdateSnapshot).
func (c *cluster) see(pods []*v1.Pod) {
	known := map[string]bool{}
	for _, node := range c.listed {
		known[node.Name] = true
	}
	seen := []*v1.Pod{}
	for _, pod := range pods {
		if known[pod.Spec.NodeName] && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			seen = append(seen, pod)
		}
	}
	c.pods = seen
	c.nodes.SharedLister = internalcache.NewSnapshot(seen, c.listed)
}

// refusals returns the nodes that refuse a pod, as pkg/scheduler/schedule_one.go#findNodesThatFitPod does.
func (c *cluster) refusals(pod *v1.Pod) map[string]refusal {
	found := map[string]refusal{}
	state := framework.NewCycleState()
	narrowed, status, by := c.RunPreFilterPlugins(ctx, state, pod)
	all, err := c.nodes.NodeInfos().List()
	if err != nil {
		log.Fatal(err)
	}
	for _, info := range all {
		name := info.Node().Name
		switch {
		case !status.IsSuccess():
			found[name] = refusalOf(status)
		case !narrowed.AllNodes() && !narrowed.NodeNames.Has(name):
			found[name] = refusal{strings.Join(by.UnsortedList(), "+"), "left out by PreFilter"}
		default:
			if refused := c.RunFilterPlugins(ctx, state, pod, info); !refused.IsSuccess() {
				found[name] = refusalOf(refused)
			}
		}
	}
	return found
}

// preemptions returns the nodes on which preemption would make room for a pod, as
// pkg/scheduler/framework/preemption/preemption.go#findCandidates does. Nothing is deleted.
func (c *cluster) preemptions(pod *v1.Pod) []string {
	found := []string{}
	if able, _ := c.preemption.PodEligibleToPreemptOthers(ctx, pod, nil); !able {
		return found
	}
	state := framework.NewCycleState()
	narrowed, status, _ := c.RunPreFilterPlugins(ctx, state, pod)
	all, err := c.nodes.NodeInfos().List()
	if err != nil {
		log.Fatal(err)
	}
	for _, info := range all {
		name := info.Node().Name
		if !status.IsSuccess() || !narrowed.AllNodes() && !narrowed.NodeNames.Has(name) {
			continue // UnschedulableAndUnresolvable
		}
		if c.RunFilterPlugins(ctx, state, pod, info).Code() != fwk.Unschedulable {
			continue
		}
		_, _, status := c.preemption.SelectVictimsOnNode(ctx, state.Clone(), pod, info.Snapshot(), nil)
		if status.IsSuccess() {
			found = append(found, name)
		}
	}
	return found
}

func refusalOf(status *fwk.Status) refusal {
	plugin := status.Plugin()
	if !status.IsRejected() {
		plugin = "error" // the pod stays pending and is tried again
	}
	return refusal{plugin, status.Message()}
}

// search tries every order and every choice of nodes.
func (c *cluster) search(left []*v1.Pod, steps *int) bool {
	if len(left) == 0 {
		return true
	}
	before := c.pods
	defer func() { c.see(before) }()
	for index, pod := range left {
		refused := c.refusals(pod)
		for _, node := range c.listed {
			if _, ok := refused[node.Name]; ok {
				continue
			}
			if *steps++; *steps >= searchLimit {
				return false
			}
			bound := pod.DeepCopy()
			bound.Spec.NodeName = node.Name
			c.see(append(before[:len(before):len(before)], bound))
			rest := append(append([]*v1.Pod{}, left[:index]...), left[index+1:]...)
			if c.search(rest, steps) {
				return true
			}
			c.see(before)
		}
	}
	return false
}
