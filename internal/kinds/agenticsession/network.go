package agenticsession

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
	"github.com/yardmaster/yardmaster/internal/pod/networkcheck"
)

// NetworkSettings are the properties of the cluster's network.
type NetworkSettings = sessionrunner.Network

// DefaultDenyPolicyName is the name of the NetworkPolicy that denies all connections of the Pods of sessions in a
// namespace.
const DefaultDenyPolicyName = "yardmaster-sessions-default-deny"

// NewDefaultDenyPolicy returns the NetworkPolicy with DefaultDenyPolicyName. It has no owner and is never deleted,
// because the garbage collector deletes the policy of a deleted session while the session's Pod may still run.
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

// newSessionNetworkPolicy returns the NetworkPolicy of the Pods of the session's Job, or of its next attempt if job is nil. It allows
// the connections that the SessionRunner names; the cluster's DNS, unless the SessionRunner names only hosts, which the egress proxy
// resolves; the API server if the runner has a Lease to renew; and the network check, if there is one.
func newSessionNetworkPolicy(
	s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner, job *batchv1.Job, settings *NetworkSettings, check *NetworkCheck,
) *networkingv1.NetworkPolicy {
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
	hasLease := runner.Spec.ActivityLease
	if job != nil {
		hasLease = s.Status.Attempt.Limits.ActivityLease
	}
	if hasLease {
		policy.Spec.Egress = append(policy.Spec.Egress, settings.APIServer...)
	}
	for i := range runner.Spec.Network.Egress {
		if rule, valid := egressRule(&runner.Spec.Network.Egress[i], settings); valid {
			policy.Spec.Egress = append(policy.Spec.Egress, rule)
		}
	}
	if s.Spec.Interactive && len(runner.Spec.Network.IngressFrom) > 0 {
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
			From:  runner.Spec.Network.DeepCopy().IngressFrom,
			Ports: []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(sessionPort(runner, job), nil, corev1.ProtocolTCP)},
		}}
	}
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

// egressRule returns the rule of a NetworkPolicy; false for an invalid rule. A rule without peers or ports would allow all of
// them.
func egressRule(rule *v1alpha1.SessionEgress, settings *NetworkSettings) (allowed networkingv1.NetworkPolicyEgressRule, valid bool) {
	switch {
	case len(rule.Hosts) > 0:
		return networkingv1.NetworkPolicyEgressRule{
			To:    []networkingv1.NetworkPolicyPeer{{PodSelector: workload.Selector()}},
			Ports: []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(workload.Port, nil, corev1.ProtocolTCP)},
		}, true
	case rule.To != nil && rule.To.IPBlock != nil:
		allowed.To = []networkingv1.NetworkPolicyPeer{sessionrunner.BlockWithout(rule.To.IPBlock.CIDR, rule.To.IPBlock.Except, sessionrunner.MetadataNetworks)}
	case rule.To != nil:
		allowed.To = []networkingv1.NetworkPolicyPeer{*rule.To.DeepCopy()}
	case rule.Profile == v1alpha1.EgressPublicOnly:
		allowed.To = settings.PublicPeers()
	}
	for _, port := range rule.Ports {
		if port.Port == nil || port.Port.Type != intstr.Int {
			return networkingv1.NetworkPolicyEgressRule{}, false
		}
		allowed.Ports = append(allowed.Ports, sessionrunner.PolicyPort(port.Port.IntVal, port.EndPort, ptr.Deref(port.Protocol, corev1.ProtocolTCP)))
	}
	return allowed, len(allowed.To) > 0 && len(allowed.Ports) > 0
}

// IsNetworkPolicyCurrent reports whether a NetworkPolicy exists, with the spec and the controller that the operator
// sets.
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

// findWideningPolicy returns the first NetworkPolicy that selects a Pod and allows connections that the wanted policy
// does not, or nil. Each peer of a rule must be contained in a single rule of the wanted policy, which can be decided
// without knowing the Pods and namespaces that selectors select.
func findWideningPolicy(policies []networkingv1.NetworkPolicy, pod map[string]string, wanted *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	wantedEgress, wantedIngress := rulesOf(wanted)
	for i := range policies {
		policy := &policies[i]
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		selectsPod := err == nil && selector.Matches(labels.Set(pod))
		if policy.Name == wanted.Name || policy.Name == DefaultDenyPolicyName || !selectsPod {
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

// SelectedSessions returns the UID of the session whose Pods a NetworkPolicy selects, AllSessions, or "" if it cannot
// select Pods of sessions, with any labels of SessionRunners.
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

type networkRule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

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

// containsPorts reports whether all inner ports are among the outer ports. An empty list means all ports.
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

// checkContainer checks whether NetworkPolicies are enforced.
const checkContainer = "yardmaster-network-check"

const (
	// addressInterval is the time between two lookups of the operator's addresses.
	addressInterval = 5 * time.Second
	// unlimitedCheck is the timeout of the check in a session without startupTimeout.
	unlimitedCheck = 7 * 24 * time.Hour
	// maxReportOnlyCheck limits the timeout of a check whose result changes nothing, because the agent starts after it.
	maxReportOnlyCheck = time.Minute
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
	return c.Image != "" && runner != nil && !slices.ContainsFunc(runner.Spec.Network.Egress, mayAllowDenied)
}

// mayAllowDenied reports whether a rule may allow connections to the denied port of the operator's Pods. Their
// addresses are not known, but are not public IPv4 addresses.
func mayAllowDenied(rule v1alpha1.SessionEgress) bool {
	denied := sessionrunner.PolicyPort(networkcheck.DeniedPort, nil, corev1.ProtocolTCP)
	allowsPort := func(port networkingv1.NetworkPolicyPort) bool { return containsPort(&port, &denied) }
	switch {
	case len(rule.Ports) > 0 && !slices.ContainsFunc(rule.Ports, allowsPort):
		return false
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

// newCheckContainers returns the init container with the network check, which runs before all others, if the check
// applies to the session.
func (b *objectBuilder) newCheckContainers() []corev1.Container {
	runner := b.settings.runner
	if !b.check.appliesTo(runner) || len(b.check.Addresses) == 0 {
		return nil
	}
	timeout := cmp.Or(startupTimeoutOf(&b.session.Spec), unlimitedCheck)
	reportOnly := runner.Spec.Network.Isolation == v1alpha1.NetworkIsolationPreferred
	if reportOnly {
		timeout = min(timeout, maxReportOnlyCheck)
	}
	args := []string{"network-check", "--result-file=" + resultPath, "--timeout=" + timeout.String()}
	for _, address := range b.check.Addresses {
		args = append(args, "--address="+address.String())
	}
	if reportOnly {
		args = append(args, "--report-only=true")
	}
	return []corev1.Container{{
		Name: checkContainer, Image: b.check.Image, ImagePullPolicy: b.settings.container().ImagePullPolicy, Args: args,
		Resources:              sidecarDefaults,
		TerminationMessagePath: resultPath, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}}
}

// enforcementProblem returns the problem of a network check without the result Enforced.
func enforcementProblem(t *corev1.ContainerStateTerminated) decision.Problem {
	problem := decision.Problem{Reason: v1alpha1.ReasonNetworkEnforcementUnknown}
	switch {
	case networkcheck.ParseResult(t.Message) == networkcheck.NotEnforced:
		problem.Reason = v1alpha1.ReasonNetworkNotEnforced
		problem.Message = "a connection that the session's NetworkPolicy does not allow succeeded: the cluster's network plugin does not enforce NetworkPolicies"
	case t.ExitCode == networkcheck.ExitUnknown, t.ExitCode == 0 && t.Message == networkcheck.Unknown.String():
		problem.Message = fmt.Sprintf("the Pod could not reach port %d of the operator, so it is not known whether NetworkPolicies are enforced", networkcheck.ControlPort)
	default:
		problem.Message = fmt.Sprintf("the network check ended with exit code %d, so it is not known whether NetworkPolicies are enforced", t.ExitCode)
	}
	return problem
}

// checkProblem returns why a Pod's network check keeps its runner from starting; nil if it does not.
func checkProblem(pod *corev1.Pod) *decision.Problem {
	c := findContainer(pod, checkContainer)
	if c == nil || c.State.Terminated == nil || c.State.Terminated.ExitCode == 0 {
		return nil
	}
	return new(enforcementProblem(c.State.Terminated))
}

const (
	// proxyURLKey is the key, in the inputs, of the URL of the egress proxy, which contains the session's token.
	proxyURLKey = "egress-proxy-url"
	// proxyTokenMargin is how much longer a token is valid than the session may run: its Pod may wait for a node.
	proxyTokenMargin = 24 * time.Hour
	// unlimitedTokenLifetime is the lifetime of a token if the session's time is not limited, or its Job may wait in a
	// queue.
	unlimitedTokenLifetime = 365 * 24 * time.Hour
)

// Variables that make programs use the egress proxy. The operator sets them if the SessionRunner allows hosts.
var (
	proxyURLVariables = []string{"HTTPS_PROXY", "https_proxy"}
	noProxyVariables  = []string{"NO_PROXY", "no_proxy"}
	nodeProxyVariable = "NODE_USE_ENV_PROXY"
	proxyVariables    = slices.Concat(proxyURLVariables, noProxyVariables, []string{nodeProxyVariable})
)

// egressTokenExpires returns until when the token of the session is valid: for as long as an attempt that starts now may run. It is nil
// without a token.
func egressTokenExpires(f *facts, status *v1alpha1.AgenticSessionStatus) *metav1.Time {
	if !sessionrunner.UsesProxy(f.Runner) {
		return nil
	}
	lifetime := unlimitedTokenLifetime
	// A Job may wait in a queue for any time, and its Pod then reads this token.
	isQueued := f.Runner.Spec.JobMetadata != nil && f.Runner.Spec.JobMetadata.Labels[queueLabel] != ""
	if left, limited := remainingSeconds(&f.Observation, status); limited && !isQueued {
		lifetime = time.Duration(left) * time.Second
	}
	expires, needed := status.Attempt.EgressTokenExpires, f.now.Add(lifetime)
	if expires == nil || expires.Time.Before(needed) {
		return new(metav1.NewTime(needed.Add(proxyTokenMargin)))
	}
	return expires
}

// usesProxy reports whether the attempt's containers get the URL of the egress proxy.
func (b *objectBuilder) usesProxy() bool {
	runner := b.settings.runner
	return sessionrunner.UsesProxy(runner) && runner.Status.EgressProxyAddress != "" && b.keys != nil && b.status.Attempt.EgressTokenExpires != nil
}

// newProxyVariables returns the variables that make programs use the egress proxy. They refer to the token in the
// inputs, because more users may read Pods than Secrets.
func (b *objectBuilder) newProxyVariables(inputs string) []corev1.EnvVar {
	if !b.usesProxy() {
		return nil
	}
	var variables []corev1.EnvVar
	for _, name := range proxyURLVariables {
		variables = append(variables, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: inputs}, Key: proxyURLKey,
		}}})
	}
	direct := []string{"localhost", "127.0.0.1", "::1", "$(KUBERNETES_SERVICE_HOST)"} // the kubelet sets KUBERNETES_SERVICE_HOST
	for _, rule := range b.settings.runner.Spec.Network.Egress {
		if rule.To != nil && rule.To.IPBlock != nil {
			direct = append(direct, rule.To.IPBlock.CIDR)
		}
	}
	for _, name := range noProxyVariables {
		variables = append(variables, corev1.EnvVar{Name: name, Value: strings.Join(direct, ",")})
	}
	return append(variables, corev1.EnvVar{Name: nodeProxyVariable, Value: "1"})
}

// checkProxyUse rejects variables that the operator sets, and repositories that the proxy cannot reach.
func (r *runnerSettings) checkProxyUse(s *v1alpha1.AgenticSession) field.ErrorList {
	if !sessionrunner.UsesProxy(r.runner) {
		return nil
	}
	var errs field.ErrorList
	at := field.NewPath("spec")
	for _, name := range sortedKeys(s.Spec.EnvironmentVariables) {
		if slices.Contains(proxyVariables, name) {
			errs = append(errs, field.Forbidden(at.Child("environmentVariables").Key(name), "the operator sets this variable for the hosts of SessionRunner "+r.runner.Name))
		}
	}
	if !sessionrunner.UsesOnlyProxy(r.runner) { // another rule may allow the server's address
		return errs
	}
	check := func(url v1alpha1.GitURL, at *field.Path) {
		if !strings.HasPrefix(strings.ToLower(string(url)), "https://") {
			errs = append(errs, field.Forbidden(at, "SessionRunner "+r.runner.Name+" allows only TLS connections to hosts, and not SSH; use an https:// URL"))
		}
	}
	for i := range s.Spec.Repos {
		check(s.Spec.Repos[i].URL, at.Child("repos").Index(i).Child("url"))
	}
	if workflow := s.Spec.Agent.Workflow; workflow != nil {
		check(workflow.URL, at.Child("agent", "workflow", "url"))
	}
	return errs
}
