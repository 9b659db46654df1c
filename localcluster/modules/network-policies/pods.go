package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/podinfo"
)

// newPods returns a lookup of Pods by address. It queries containerd first, which
// knows an address before the Pod's first container starts; the API server knows it
// a second later.
func newPods(factory informers.SharedInformerFactory, started podinfo.IPResolver) (api.PodInfoProvider, error) {
	pods := factory.Core().V1().Pods()
	if err := pods.Informer().SetTransform(trim); err != nil {
		return nil, err
	}
	published, err := podinfo.NewInformerResolver(pods.Informer())
	if err != nil {
		return nil, err
	}
	return podinfo.NewInformerProvider(pods, factory.Core().V1().Namespaces(), nil, []podinfo.IPResolver{started, published}), nil
}

// trim keeps only what policies refer to, since there may be thousands of Pods.
func trim(object any) (any, error) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return object, nil
	}
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, PodIPs: pod.Status.PodIPs},
	}
	for _, container := range pod.Spec.Containers {
		kept.Spec.Containers = append(kept.Spec.Containers, corev1.Container{Name: container.Name, Ports: container.Ports})
	}
	return kept, nil
}

// withDNS treats the cluster's DNS as the Pod that it is in other clusters, so that
// the usual policies allow it.
type withDNS struct {
	api.PodInfoProvider
	address string
}

func (w withDNS) GetPodInfoByIP(ip string) (*api.PodInfo, bool) {
	if ip != w.address {
		return w.PodInfoProvider.GetPodInfoByIP(ip)
	}
	return &api.PodInfo{
		Name:   "coredns",
		Labels: map[string]string{"k8s-app": "kube-dns"},
		Namespace: &api.Namespace{
			Name:   metav1.NamespaceSystem,
			Labels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem},
		},
		Node: &api.Node{},
	}, true
}
