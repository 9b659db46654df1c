package main

import (
	"context"
	"maps"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// runtimePods are the addresses that containerd has assigned to Pods. containerd
// reports each before it starts the Pod's first container, and waits for the reply.
type runtimePods struct {
	mu   sync.Mutex
	pods map[string]*api.PodSandbox // by address
}

// newRuntimePods does not wait for the list of existing Pods, which the API server
// provides too: while a Pod is stopping, containerd reports nothing. lost is called
// when containerd exits.
func newRuntimePods(ctx context.Context, lost func()) (*runtimePods, error) {
	r := &runtimePods{pods: map[string]*api.PodSandbox{}}
	plugin, err := stub.New(r, stub.WithPluginName("network-policies"), stub.WithPluginIdx("10"), stub.WithOnClose(lost))
	if err != nil {
		return nil, err
	}
	if err := plugin.Start(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// LookupPod returns namespace/name.
func (r *runtimePods) LookupPod(address string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod, found := r.pods[address]
	return pod.GetNamespace() + "/" + pod.GetName(), found
}

// Synchronize is called once, with the existing Pods.
//
//nolint:unparam // The interface is NRI's.
func (r *runtimePods) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	for _, pod := range pods {
		r.add(pod)
	}
	return nil, nil
}

// RunPodSandbox is called when a Pod has an address, before its containers start.
//
//nolint:unparam // The interface is NRI's.
func (r *runtimePods) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	r.add(pod)
	return nil
}

// RemovePodSandbox is called when a Pod has ended or received another sandbox.
func (r *runtimePods) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.pods, func(_ string, known *api.PodSandbox) bool { return known.GetId() == pod.GetId() })
	return nil
}

func (r *runtimePods) add(pod *api.PodSandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, address := range pod.GetIps() {
		r.pods[address] = pod
	}
}
