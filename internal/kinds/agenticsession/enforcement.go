package agenticsession

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/pod/networkcheck"
)

// checkContainer checks whether NetworkPolicies are enforced.
const checkContainer = "yardmaster-network-check"

const (
	// addressInterval is the time between two lookups of the operator's addresses.
	addressInterval = 5 * time.Second
	// unlimitedCheck is the timeout of the check in a session without startupTimeout.
	unlimitedCheck = 7 * 24 * time.Hour
)

var operatorLabels = map[string]string{"app.kubernetes.io/name": "yardmaster", "app.kubernetes.io/component": "operator"}

// NetworkCheck describes the operator's side of the network check; with the zero value, sessions have no check.
type NetworkCheck struct {
	// Image contains the program for the check.
	Image string
	// Namespace of the operator.
	Namespace string
	// Addresses of the operator; none if they are not known.
	Addresses []netip.Addr
}

// appliesTo reports whether the Pods of a SessionRunner check their network. They do not if the SessionRunner itself
// may allow the connection that must fail.
func (c *NetworkCheck) appliesTo(runner *v1alpha1.SessionRunner) bool {
	if c.Image == "" || runner == nil {
		return false
	}
	for i := range runner.Spec.Network.Egress {
		if mayAllowDenied(&runner.Spec.Network.Egress[i]) {
			return false
		}
	}
	return true
}

// mayAllowDenied reports whether a rule may allow connections to the denied port of the operator's Pods. Their
// addresses are not known, but are not public IPv4 addresses.
func mayAllowDenied(rule *v1alpha1.SessionEgress) bool {
	if !allowsPort(rule.Ports, networkcheck.DeniedPort) {
		return false
	}
	switch {
	case rule.To != nil && rule.To.NamespaceSelector != nil:
		if rule.To.PodSelector == nil { // all Pods of the namespaces
			return true
		}
		selector, err := metav1.LabelSelectorAsSelector(rule.To.PodSelector)
		return err != nil || selector.Matches(labels.Set(operatorLabels))
	case rule.To != nil && rule.To.IPBlock == nil:
		return false // Pods of the session's namespace
	case rule.To != nil:
		return !sessionrunner.IsPublicIPv4(rule.To.IPBlock.CIDR)
	}
	return false // hosts, or public addresses
}

func allowsPort(ports []networkingv1.NetworkPolicyPort, port int32) bool {
	wanted := sessionrunner.PolicyPort(port, nil, corev1.ProtocolTCP)
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool { return containsPort(&p, &wanted) })
}

// newSessionNetworkPolicy returns the NetworkPolicy of the session's Pods, with the rule of their network check.
func newSessionNetworkPolicy(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner, settings *NetworkSettings, check *NetworkCheck) *networkingv1.NetworkPolicy {
	policy := buildNetworkPolicy(s, runner, settings)
	if check.appliesTo(runner) { // the connection that must succeed
		policy.Spec.Egress = append(policy.Spec.Egress, networkingv1.NetworkPolicyEgressRule{
			To: []networkingv1.NetworkPolicyPeer{{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: check.Namespace}},
				PodSelector:       &metav1.LabelSelector{MatchLabels: operatorLabels},
			}},
			Ports: []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(networkcheck.ControlPort, nil, corev1.ProtocolTCP)},
		})
	}
	return policy
}

// newCheckContainers returns the init container with the network check, which runs before all others, if the check
// applies to the session.
func (b *objectBuilder) newCheckContainers() []corev1.Container {
	runner := b.settings.runner
	if b.check == nil || !b.check.appliesTo(runner) || len(b.check.Addresses) == 0 {
		return nil
	}
	timeout := startupTimeoutOf(&b.session.Spec)
	args := []string{"network-check", "--result-file=" + resultPath, "--timeout=" + cmp.Or(timeout, unlimitedCheck).String()}
	for _, address := range b.check.Addresses {
		args = append(args, "--address="+address.String())
	}
	if runner.Spec.Network.Isolation == v1alpha1.NetworkIsolationPreferred {
		args = append(args, "--report-only=true")
	}
	return []corev1.Container{{
		Name: checkContainer, Image: b.check.Image, ImagePullPolicy: b.settings.container().ImagePullPolicy, Args: args,
		Resources:              sidecarDefaults,
		TerminationMessagePath: resultPath, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}}
}

func checkStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	if pod == nil {
		return nil
	}
	return findContainer(pod.Status.InitContainerStatuses, checkContainer)
}

// networkEnforced reports whether the network enforces NetworkPolicies, according to the check in the session's Pod.
// After the Pod was deleted, the session keeps the last result.
func networkEnforced(pod *corev1.Pod, previous *metav1.Condition) decision.State {
	c := checkStatus(pod)
	switch {
	case pod == nil && previous != nil &&
		(previous.Reason == v1alpha1.ReasonNetworkPolicyEnforced || previous.Reason == v1alpha1.ReasonNetworkNotEnforced):
		return unchanged
	case c == nil:
		return decision.True(v1alpha1.ReasonNetworkPolicyApplied, "The session does not check whether NetworkPolicies are enforced")
	case c.State.Terminated == nil:
		return decision.State{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNetworkCheckPending, Message: "The network check of the Pod has not ended"}
	}
	if networkcheck.ParseResult(c.State.Terminated.Message) == networkcheck.Enforced {
		return decision.True(v1alpha1.ReasonNetworkPolicyEnforced, "A connection that is not allowed failed, and one that is allowed succeeded")
	}
	problem := enforcementProblem(c.State.Terminated)
	if problem.Reason == v1alpha1.ReasonNetworkNotEnforced {
		return decision.False(problem.Reason, problem.Message)
	}
	return decision.State{Status: metav1.ConditionUnknown, Reason: problem.Reason, Message: problem.Message}
}

// enforcementProblem returns the problem of a network check without the result Enforced.
func enforcementProblem(t *corev1.ContainerStateTerminated) decision.Problem {
	problem := decision.Problem{Reason: v1alpha1.ReasonNetworkEnforcementUnknown}
	switch {
	case networkcheck.ParseResult(t.Message) == networkcheck.NotEnforced:
		problem.Reason = v1alpha1.ReasonNetworkNotEnforced
		problem.Message = "a connection that the session's NetworkPolicy does not allow succeeded: the cluster's network plugin does not enforce NetworkPolicies"
	case t.ExitCode == networkcheck.ExitUnknown:
		problem.Message = "the Pod could not connect to the operator, so it is not known whether NetworkPolicies are enforced"
	default:
		problem.Message = fmt.Sprintf("the network check ended with exit code %d, so it is not known whether NetworkPolicies are enforced", t.ExitCode)
	}
	return problem
}

// checkProblem returns why a Pod's network check keeps its runner from starting; nil if it does not.
func checkProblem(pod *corev1.Pod) *decision.Problem {
	c := checkStatus(pod)
	if c == nil || c.State.Terminated == nil || c.State.Terminated.ExitCode == 0 {
		return nil
	}
	return new(enforcementProblem(c.State.Terminated))
}
