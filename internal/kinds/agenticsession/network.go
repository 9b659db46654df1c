package agenticsession

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
)

// NetworkSettings are the properties of the cluster's network.
type NetworkSettings = sessionrunner.Network

// DefaultDenyPolicyName is the name of the NetworkPolicy that denies the Pods of all sessions of a namespace every
// connection.
const DefaultDenyPolicyName = "yardmaster-sessions-default-deny"

// NewDefaultDenyPolicy returns that policy. The policies of sessions only add to it. No session owns it, and it is
// never deleted: the garbage collector deletes the policy of a deleted session at once, but the session's Pod lives
// on until it has ended.
func NewDefaultDenyPolicy(namespace string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{
			Name: DefaultDenyPolicyName, Namespace: namespace, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: LabelSessionUID, Operator: metav1.LabelSelectorOpExists}}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
}

// buildNetworkPolicy returns the NetworkPolicy of the session's Pods: it allows what the
// SessionRunner names; the cluster's DNS, unless all that it names are hosts, which the egress proxy resolves; and the API
// server if the runner has a Lease.
func buildNetworkPolicy(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner, settings *NetworkSettings) *networkingv1.NetworkPolicy {
	policy := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: childMetadata(s, NetworkPolicyName(s.Name)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{LabelSessionUID: string(s.UID)}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
	if !sessionrunner.UsesOnlyProxy(runner) {
		policy.Spec.Egress = append(policy.Spec.Egress, settings.AllowDNS())
	}
	if hasLease(s, runner) {
		policy.Spec.Egress = append(policy.Spec.Egress, settings.APIServer...)
	}
	for i := range runner.Spec.Egress {
		policy.Spec.Egress = append(policy.Spec.Egress, egressRule(&runner.Spec.Egress[i], settings))
	}
	if s.Spec.Interactive && len(runner.Spec.IngressFrom) > 0 {
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
			From:  runner.Spec.DeepCopy().IngressFrom,
			Ports: []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(sessionPort(runner), nil, corev1.ProtocolTCP)},
		}}
	}
	return policy
}

// hasLease reports whether the runner of the open attempt or that of the next one has a Lease to renew.
func hasLease(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) bool {
	return runner.Spec.ActivityLease || ptr.Deref(s.Status.ActivityLease, false)
}

func egressRule(rule *v1alpha1.SessionEgress, settings *NetworkSettings) networkingv1.NetworkPolicyEgressRule {
	allowed := networkingv1.NetworkPolicyEgressRule{}
	switch {
	case len(rule.Hosts) > 0:
		return networkingv1.NetworkPolicyEgressRule{
			To:    []networkingv1.NetworkPolicyPeer{{PodSelector: workload.Selector()}},
			Ports: []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(workload.Port, nil, corev1.ProtocolTCP)},
		}
	case rule.To != nil:
		allowed.To = []networkingv1.NetworkPolicyPeer{*rule.To.DeepCopy()}
	case rule.Profile == v1alpha1.EgressPublicOnly:
		allowed.To = settings.PublicPeers()
	default:
		allowed.To = []networkingv1.NetworkPolicyPeer{sessionrunner.BlockWithout(rule.CIDR, rule.Except, sessionrunner.MetadataNetworks)}
	}
	for _, port := range rule.Ports {
		allowed.Ports = append(allowed.Ports, sessionrunner.PolicyPort(port.Port, port.EndPort, port.Protocol))
	}
	return allowed
}

// IsNetworkPolicyCurrent reports whether a NetworkPolicy exists, and is as the operator creates it.
func IsNetworkPolicyCurrent(found, want *networkingv1.NetworkPolicy) bool {
	if found == nil || !equality.Semantic.DeepEqual(found.Spec, want.Spec) {
		return false
	}
	controller, wanted := metav1.GetControllerOfNoCopy(found), metav1.GetControllerOfNoCopy(want)
	if controller == nil || wanted == nil {
		return controller == wanted
	}
	return controller.UID == wanted.UID
}

func findNetworkPolicy(policies []networkingv1.NetworkPolicy, name string) *networkingv1.NetworkPolicy {
	for i := range policies {
		if policies[i].Name == name {
			return &policies[i]
		}
	}
	return nil
}
