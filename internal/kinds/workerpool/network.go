package workerpool

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// operatorLabels are the labels of the operator's Pods.
var operatorLabels = map[string]string{
	"app.kubernetes.io/name": "yardmaster", "app.kubernetes.io/component": "operator",
}

const firstPort, lastPort int32 = 1, 65535

// buildNetworkPolicy returns the NetworkPolicy of the pool's workers, which closes the admin port to
// all Pods but the operator's. Requests from a node, such as those of the kubelet, are always allowed.
//
// NetworkPolicies only allow. If another one restricts the workers, this one must not open their
// ports, so it allows nothing but what the operator needs. The labels are those of the workers.
func (b *workloadBuilder) buildNetworkPolicy(workers map[string]string, others []networkingv1.NetworkPolicy) decision.Object {
	policy := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: b.sharedMetadata(),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: WorkerSelector(b.pool.Name)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{allowOperator(b.operator.Namespace)},
		},
	}
	restricts := func(other networkingv1.NetworkPolicy) bool {
		return !metav1.IsControlledBy(&other, b.pool) && restrictsIngress(&other, workers)
	}
	switch {
	case b.pool.Spec.NetworkPolicy == v1alpha1.PoolNetworkPolicyNone:
		// It selects no Pods. The operator is not permitted to delete NetworkPolicies.
		policy.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: LabelWorkerPool, Operator: metav1.LabelSelectorOpDoesNotExist},
		}
	case !slices.ContainsFunc(others, restricts):
		policy.Spec.Ingress = append(policy.Spec.Ingress, allowAllPortsExcept(AdminPort))
	}
	return policy
}

// restrictsIngress reports whether a NetworkPolicy selects Pods with these labels, and restricts
// what may connect to them.
func restrictsIngress(policy *networkingv1.NetworkPolicy, pod map[string]string) bool {
	types := policy.Spec.PolicyTypes
	if len(types) > 0 && !slices.Contains(types, networkingv1.PolicyTypeIngress) {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	return err == nil && selector.Matches(labels.Set(pod))
}

func allowOperator(namespace string) networkingv1.NetworkPolicyIngressRule {
	return networkingv1.NetworkPolicyIngressRule{
		From: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: operatorLabels},
		}},
		Ports: []networkingv1.NetworkPolicyPort{portRange(corev1.ProtocolTCP, AdminPort, AdminPort)},
	}
}

// allowAllPortsExcept allows all peers to connect to all ports but one TCP port.
func allowAllPortsExcept(port int32) networkingv1.NetworkPolicyIngressRule {
	return networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{
		portRange(corev1.ProtocolTCP, firstPort, port-1),
		portRange(corev1.ProtocolTCP, port+1, lastPort),
		portRange(corev1.ProtocolUDP, firstPort, lastPort),
		portRange(corev1.ProtocolSCTP, firstPort, lastPort),
	}}
}

func portRange(protocol corev1.Protocol, first, last int32) networkingv1.NetworkPolicyPort {
	r := networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(first))}
	if last != first {
		r.EndPort = &last
	}
	return r
}
