package main

import (
	"context"

	k8sv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// do is what users, remediators and kubelets do to a guest, its pod or its node.
func (w *world) do(guest, what string) {
	ctx := context.Background()
	switch what {
	case "terminate": // taint eviction, which no kubelet confirms
		w.eachPod(guest, func(pod *k8sv1.Pod) error {
			return w.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
		})
	case "force":
		w.eachPod(guest, w.remove)
	case "collect": // pod garbage collection (pkg/controller/podgc/gc_controller.go#markFailedAndDeletePod)
		w.eachPod(guest, func(pod *k8sv1.Pod) error {
			pod.Status.Phase = k8sv1.PodFailed
			return w.report(pod)
		})
		w.eachPod(guest, w.remove)
	case "delete node":
		must(w.CoreV1().Nodes().Delete(ctx, nodeOf(guest), metav1.DeleteOptions{}))
	case "fail": // the last thing that its kubelet reports
		w.eachPod(guest, func(pod *k8sv1.Pod) error {
			pod.Status.Phase = k8sv1.PodFailed
			return w.report(pod)
		})
	case "end": // its containers have ended, but the pod has not
		w.eachPod(guest, func(pod *k8sv1.Pod) error {
			ended := k8sv1.ContainerState{Terminated: &k8sv1.ContainerStateTerminated{ExitCode: 137}}
			pod.Status.ContainerStatuses = []k8sv1.ContainerStatus{{Name: "compute", State: ended}}
			return w.report(pod)
		})
	case "delete VMI":
		w.eachVMI(guest, func(vmi *v1.VirtualMachineInstance) error {
			return w.VirtualMachineInstance(namespace).Delete(ctx, vmi.Name, metav1.DeleteOptions{})
		})
	case "halt": // virtctl stop of a VM with Always
		found, err := w.VirtualMachine(namespace).Get(ctx, guest, metav1.GetOptions{})
		must(err)
		halted := v1.RunStrategyHalted
		found.Spec.RunStrategy = &halted
		_, err = w.VirtualMachine(namespace).Update(ctx, found, metav1.UpdateOptions{})
		must(err)
	case "pause": // a replica set
		found, err := w.ReplicaSet(namespace).Get(ctx, guest, metav1.GetOptions{})
		must(err)
		found.Spec.Paused = true
		_, err = w.ReplicaSet(namespace).Update(ctx, found, metav1.UpdateOptions{})
		must(err)
	case "delete VM":
		must(w.VirtualMachine(namespace).Delete(ctx, guest, metav1.DeleteOptions{}))
	case "stop", "restart": // pkg/virt-api/rest/lifecycle.go#StopVMRequestHandler, #RestartVMRequestHandler
		w.eachVMI(guest, func(vmi *v1.VirtualMachineInstance) error {
			uid := vmi.UID
			asked := []v1.VirtualMachineStateChangeRequest{{Action: v1.StopRequest, UID: &uid}}
			if what == "restart" {
				asked = append(asked, v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
			}
			return w.changeVM(guest, func(vm *v1.VirtualMachine) { vm.Status.StateChangeRequests = asked })
		})
	}
}

// changeVM changes the status of a VM.
func (w *world) changeVM(name string, change func(*v1.VirtualMachine)) error {
	for {
		found, err := w.VirtualMachine(namespace).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(found)
		if _, err = w.VirtualMachine(namespace).UpdateStatus(context.Background(), found, metav1.UpdateOptions{}); !errors.IsConflict(err) {
			return err
		}
	}
}

func (w *world) report(pod *k8sv1.Pod) error {
	_, err := w.CoreV1().Pods(namespace).UpdateStatus(context.Background(), pod, metav1.UpdateOptions{})
	return err
}

// eachPod does something to the pods of a guest on its lost node.
func (w *world) eachPod(guest string, do func(*k8sv1.Pod) error) {
	for _, pod := range all[*k8sv1.Pod](w.informers.pods) {
		if pod.Labels[label] == guest && pod.Spec.NodeName == nodeOf(guest) {
			must(do(pod.DeepCopy()))
		}
	}
}

// eachVMI does something to the VMIs of a guest that have not ended.
func (w *world) eachVMI(guest string, do func(*v1.VirtualMachineInstance) error) {
	for _, vmi := range all[*v1.VirtualMachineInstance](w.informers.vmis) {
		if vmi.Labels[label] == guest && !vmi.IsFinal() {
			must(do(vmi))
		}
	}
}
