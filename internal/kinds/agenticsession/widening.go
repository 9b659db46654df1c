package agenticsession

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
)

// findWideningPolicy returns the first NetworkPolicy that selects a Pod and allows connections that the wanted one
// does not, nil if none does. A policy counts as one that does unless each of its rules is contained in a single rule
// of the wanted one: that can be decided without knowing the Pods and namespaces that selectors select.
func findWideningPolicy(policies []networkingv1.NetworkPolicy, pod map[string]string, wanted *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	wantedEgress, wantedIngress := rulesOf(wanted)
	for i := range policies {
		policy := &policies[i]
		if policy.Name == wanted.Name || policy.Name == DefaultDenyPolicyName || !selectsPod(policy, pod) {
			continue
		}
		egress, ingress := rulesOf(policy)
		if !areAllContained(egress, wantedEgress) || !areAllContained(ingress, wantedIngress) {
			return policy
		}
	}
	return nil
}

// AllSessions is the SelectedSessions of a NetworkPolicy that may select the Pods of more than one session.
const AllSessions = "*"

// SelectedSessions returns the UID of the session whose Pods a NetworkPolicy selects, AllSessions, or nothing if it
// selects no Pod of any session, whatever labels SessionRunners define.
func SelectedSessions(policy *networkingv1.NetworkPolicy) string {
	isNever := func(key string) bool {
		return strings.HasPrefix(key, v1alpha1.Prefix) && key != LabelSession && key != LabelSessionUID
	}
	for key := range policy.Spec.PodSelector.MatchLabels {
		if isNever(key) {
			return ""
		}
	}
	for _, requirement := range policy.Spec.PodSelector.MatchExpressions {
		needsLabel := requirement.Operator == metav1.LabelSelectorOpIn || requirement.Operator == metav1.LabelSelectorOpExists
		if needsLabel && isNever(requirement.Key) {
			return ""
		}
	}
	if uid, found := policy.Spec.PodSelector.MatchLabels[LabelSessionUID]; found {
		return uid
	}
	return AllSessions
}

func selectsPod(policy *networkingv1.NetworkPolicy, pod map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	return err == nil && selector.Matches(labels.Set(pod))
}

// networkRule is a rule of either direction.
type networkRule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

// rulesOf returns the rules of a NetworkPolicy.
func rulesOf(policy *networkingv1.NetworkPolicy) (egress, ingress []networkRule) {
	for i := range policy.Spec.Egress {
		egress = append(egress, networkRule{policy.Spec.Egress[i].To, policy.Spec.Egress[i].Ports})
	}
	for i := range policy.Spec.Ingress {
		ingress = append(ingress, networkRule{policy.Spec.Ingress[i].From, policy.Spec.Ingress[i].Ports})
	}
	return egress, ingress
}

// areAllContained reports whether each peer of each rule is contained in one of the wanted rules, with all its ports.
func areAllContained(rules, wanted []networkRule) bool {
	for _, rule := range rules {
		if len(rule.peers) == 0 { // all addresses
			return false
		}
		for i := range rule.peers {
			isContained := slices.ContainsFunc(wanted, func(w networkRule) bool {
				return slices.ContainsFunc(w.peers, func(peer networkingv1.NetworkPolicyPeer) bool { return containsPeer(&peer, &rule.peers[i]) }) &&
					containsPorts(w.ports, rule.ports)
			})
			if !isContained {
				return false
			}
		}
	}
	return true
}

func containsPeer(outer, inner *networkingv1.NetworkPolicyPeer) bool {
	if outer.IPBlock == nil || inner.IPBlock == nil {
		return equality.Semantic.DeepEqual(outer, inner)
	}
	block, err := netip.ParsePrefix(inner.IPBlock.CIDR)
	if err != nil || !sessionrunner.IsSubnetOrEqual(inner.IPBlock.CIDR, outer.IPBlock.CIDR) {
		return false
	}
	for _, text := range outer.IPBlock.Except {
		denied, err := netip.ParsePrefix(text)
		isDeniedToo := slices.ContainsFunc(inner.IPBlock.Except, func(except string) bool { return sessionrunner.IsSubnetOrEqual(text, except) })
		if err != nil || denied.Overlaps(block) && !isDeniedToo {
			return false
		}
	}
	return true
}

// containsPorts reports whether all inner ports are among the outer ones. No ports means all ports.
func containsPorts(outer, inner []networkingv1.NetworkPolicyPort) bool {
	if len(outer) == 0 {
		return true
	}
	isDenied := func(port networkingv1.NetworkPolicyPort) bool {
		return !slices.ContainsFunc(outer, func(o networkingv1.NetworkPolicyPort) bool { return containsPort(&o, &port) })
	}
	return len(inner) > 0 && !slices.ContainsFunc(inner, isDenied)
}

func containsPort(outer, inner *networkingv1.NetworkPolicyPort) bool {
	switch {
	case ptr.Deref(outer.Protocol, corev1.ProtocolTCP) != ptr.Deref(inner.Protocol, corev1.ProtocolTCP):
		return false
	case outer.Port == nil:
		return true
	case inner.Port == nil:
		return false
	case outer.Port.Type == intstr.String || inner.Port.Type == intstr.String: // a name, which each Pod defines
		return *outer.Port == *inner.Port
	}
	return inner.Port.IntVal >= outer.Port.IntVal &&
		ptr.Deref(inner.EndPort, inner.Port.IntVal) <= ptr.Deref(outer.EndPort, outer.Port.IntVal)
}
