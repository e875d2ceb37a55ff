package main

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/etcd"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// managed is the management cluster as KubeadmControlPlane sees it. The workload cluster is ours.
type managed struct {
	*pkg.Management
	world *world
}

func (w *world) managementCluster() pkg.ManagementCluster {
	return managed{&pkg.Management{Client: w.management, SecretCachingClient: w.management}, w}
}

func (m managed) GetWorkloadCluster(
	context.Context, *clusterv1.Cluster, bootstrapv1.EncryptionAlgorithmType,
) (pkg.WorkloadCluster, error) {
	return static{world: m.world}, nil
}

// static tells what runs on the control-plane nodes: all static pods and the member of etcd work while their node is Ready.
type static struct {
	pkg.WorkloadCluster
	world *world
}

var pods = []string{
	controlplanev1.KubeadmControlPlaneMachineAPIServerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineControllerManagerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineSchedulerPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineEtcdPodHealthyCondition,
	controlplanev1.KubeadmControlPlaneMachineNodeKubeadmLabelsAndTaintsSetCondition,
}

func (s static) up(ctx context.Context, name string) bool {
	found := &corev1.Node{}
	err := s.world.workload.Get(ctx, client.ObjectKey{Name: name}, found)
	return name != "" && err == nil && found.Status.Conditions[0].Status == corev1.ConditionTrue
}

func (s static) mark(ctx context.Context, plane *pkg.ControlPlane, summary string, kinds ...string) {
	every := metav1.ConditionTrue
	for _, machine := range plane.Machines {
		status := metav1.ConditionTrue
		if !s.up(ctx, machine.Status.NodeRef.Name) {
			status, every = metav1.ConditionUnknown, metav1.ConditionFalse
		}
		for _, kind := range kinds {
			conditions.Set(machine, metav1.Condition{Type: kind, Status: status, Reason: "Test"})
		}
	}
	conditions.Set(plane.KCP, metav1.Condition{Type: summary, Status: every, Reason: "Test"})
}

func (s static) UpdateStaticPodConditions(ctx context.Context, plane *pkg.ControlPlane) {
	s.mark(ctx, plane, controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition, pods...)
}

func (s static) UpdateEtcdConditions(ctx context.Context, plane *pkg.ControlPlane) {
	s.mark(
		ctx, plane, controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition,
		controlplanev1.KubeadmControlPlaneMachineEtcdMemberHealthyCondition,
	)
	plane.EtcdMembersAndMachinesAreMatching = true
	up := 0
	for i, name := range s.world.members {
		member := &etcd.Member{ID: uint64(i + 1), Name: name}
		plane.EtcdMembers = append(plane.EtcdMembers, member)
		if s.up(ctx, name) {
			plane.EtcdLeader = member
			up++
		}
	}
	if up <= len(s.world.members)/2 { // no quorum, so no answer
		plane.EtcdMembers, plane.EtcdLeader = nil, nil
	}
}

func (s static) RemoveEtcdMember(_ context.Context, removed *etcd.Member, _ []*pkg.Node) error {
	s.world.members = slices.DeleteFunc(s.world.members, func(name string) bool { return name == removed.Name })
	return nil
}

func (static) GetAPIServerCertificateExpiry(
	context.Context, *bootstrapv1.KubeadmConfig, string,
) (*time.Time, error) {
	later := time.Now().AddDate(1, 0, 0)
	return &later, nil
}

func (static) ForwardEtcdLeadership(context.Context, string, string) error { return nil }
func (static) HasKubeadmConfig(context.Context) (bool, error)              { return true, nil }
func (static) UpdateKubeProxyImageInfo(context.Context, *controlplanev1.KubeadmControlPlane) error {
	return nil
}
func (static) UpdateCoreDNS(context.Context, *controlplanev1.KubeadmControlPlane) error { return nil }
