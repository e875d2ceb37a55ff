package main

import (
	"context"
	"reflect"
	"testing/synctest"
	"time"

	commonAnnotations "github.com/medik8s/common/pkg/annotations"
	"github.com/medik8s/fence-agents-remediation/api/v1alpha1"
	"github.com/medik8s/fence-agents-remediation/controllers"
	"github.com/medik8s/fence-agents-remediation/pkg/cli"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	step     = 500 * time.Millisecond // how often the driver looks for changes
	realStep = 20 * time.Millisecond
)

// operator is one process of the operator.
type operator struct {
	ctx        context.Context
	stop       context.CancelFunc
	reconciler *controllers.FenceAgentsRemediationReconciler
	limiter    workqueue.TypedRateLimiter[reconcile.Request]
	seen       string    // the resource version that it reconciled last
	due        time.Time // when it reconciles again without a change; zero: never
}

func start(store client.Client, given *Case, agent *agent) *operator {
	ctx, stop := context.WithCancel(context.Background())
	executer := cli.NewFakeExecuter(store, agent.run, &record.FakeRecorder{})
	if given.Real {
		var err error
		if executer, err = cli.NewExecuter(store, &record.FakeRecorder{}); err != nil {
			panic(err)
		}
	}
	return &operator{
		ctx: ctx, stop: stop,
		reconciler: &controllers.FenceAgentsRemediationReconciler{
			Client: store, Log: ctrl.Log, Scheme: store.Scheme(), Recorder: &record.FakeRecorder{}, Executor: executer,
		},
		limiter: workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](),
	}
}

// look reconciles if the remediation has changed, or if an earlier reconcile asked for it: as the queue of a controller does.
func (o *operator) look(request reconcile.Request, version string) {
	if version == o.seen && (o.due.IsZero() || time.Now().Before(o.due)) {
		return
	}
	o.seen, o.due = version, time.Time{}
	result, err := o.reconciler.Reconcile(o.ctx, request)
	switch {
	case err != nil || result.Requeue:
		o.due = time.Now().Add(o.limiter.When(request))
	case result.RequeueAfter > 0:
		o.limiter.Forget(request)
		o.due = time.Now().Add(result.RequeueAfter)
	default:
		o.limiter.Forget(request)
	}
}

// run plays a case.
func run(given *Case) Answer {
	ctx, agent := context.Background(), &agent{given: &given.Agent, began: time.Now()}
	store := newStore(given.Objects)
	far := typed(store.Scheme(), given.Remediation).(*v1alpha1.FenceAgentsRemediation)
	far.CreationTimestamp = metav1.Now()
	if err := store.Create(ctx, far); err != nil {
		panic(err)
	}
	read, pause := func() []Run { return agent.runs }, step
	if given.Real {
		read, pause = agent.install(far.Spec.Agent), realStep
	}
	node, key := v1alpha1.GetNodeName(far), client.ObjectKeyFromObject(far)
	answer, do := Answer{Refused: refused(store, far), Runs: []Run{}}, given.Do
	process := start(store, given, agent)
	for time.Since(agent.began) < seconds(given.Seconds) {
		for ; len(do) > 0 && time.Since(agent.began) >= seconds(do[0].At); do = do[1:] {
			if do[0].What == "operator restarts" {
				process.stop()
				process = start(store, given, agent)
				continue
			}
			act(store, key, node, do[0])
		}
		found := &v1alpha1.FenceAgentsRemediation{}
		if err := store.Get(ctx, key, found); err == nil {
			process.look(reconcile.Request{NamespacedName: key}, found.ResourceVersion)
		}
		state, _ := show(store, key, node)
		if last := len(answer.States) - 1; last < 0 || differs(answer.States[last], state) {
			state.At = time.Since(agent.began).Seconds()
			answer.States = append(answer.States, state)
		}
		time.Sleep(pause)
	}
	if _, last := show(store, key, node); last != nil {
		answer.Remediation = fields(last)
	}
	process.stop()
	if !given.Real {
		synctest.Wait()
	}
	answer.Runs = append(answer.Runs, read()...)
	return answer
}

// refused returns why the webhook of templates rejects this one: it builds the parameters of each node that is named.
func refused(store client.Client, far *v1alpha1.FenceAgentsRemediation) string {
	names := v1alpha1.GetNodeNamesFromSpec(&far.Spec)
	if len(names) == 0 {
		names = []string{"temp-validation"}
	}
	for _, name := range names {
		temporary := &v1alpha1.FenceAgentsRemediation{Spec: far.Spec}
		temporary.Name, temporary.Namespace = name, far.Namespace
		if _, _, err := v1alpha1.BuildFenceAgentParams(context.Background(), store, temporary); err != nil {
			return err.Error()
		}
	}
	return ""
}

func differs(one, other State) bool {
	one.At = other.At
	return !reflect.DeepEqual(one, other)
}

// act does what the NodeHealthCheck or an administrator does.
func act(store client.Client, key client.ObjectKey, node string, what Action) {
	ctx, far := context.Background(), &v1alpha1.FenceAgentsRemediation{}
	if err := store.Get(ctx, key, far); err != nil {
		return // it has been deleted before
	}
	var err error
	switch what.What {
	case "timed out":
		if far.Annotations == nil {
			far.Annotations = map[string]string{}
		}
		far.Annotations[commonAnnotations.NhcTimedOut] = time.Now().Format(time.RFC3339)
		err = store.Update(ctx, far)
	case "deleted":
		err = store.Delete(ctx, far)
	case "node deleted":
		err = store.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	case "created":
		err = store.Create(ctx, typed(store.Scheme(), what.Object))
	default:
		panic("not an action: " + what.What)
	}
	if err != nil {
		panic(err)
	}
}
