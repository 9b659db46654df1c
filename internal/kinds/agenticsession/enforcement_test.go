package agenticsession

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/pod/networkcheck"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

const deniedPort = networkcheck.DeniedPort

var testCheck = NetworkCheck{Image: "operator:1", Namespace: "operator", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")}}

func newCheckedScenario(t *testing.T, change ...func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	t.Helper()
	s := newScenario(t, change...)
	s.NetworkCheck = testCheck
	return s
}

func (s *scenario) startChecked() *scenario {
	s.t.Helper()
	decision := s.decideAndRecord()
	s.createPlannedJob(decision)
	s.createNetworkPolicies(decision)
	s.newestPod().Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: checkContainer}}
	return s
}

// endCheck ends the network check of the newest Pod. With an exit code other than 0, the Pod and its Job fail.
func (s *scenario) endCheck(result networkcheck.Result, exitCode int32) *scenario {
	s.t.Helper()
	pod := s.newestPod()
	pod.Status.InitContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: exitCode, Message: result.String()}
	if exitCode != 0 {
		s.endJob("Failed", "BackoffLimitExceeded")
	}
	return s
}

func TestAgentStartsOnlyAfterTheCheckOfItsNetwork(t *testing.T) {
	addresses := []string{"--address=10.0.0.5", "--address=fd00::5"}
	for timeout, argument := range map[*v1alpha1.Duration]string{
		nil: "--timeout=10m0s", seconds(0): "--timeout=168h0m0s", seconds(90): "--timeout=1m30s",
	} {
		s := newCheckedScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.StartupTimeout = timeout })
		testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.Sidecar("proxy", "proxy:1")}
		containers := s.startChecked().podSpec().InitContainers
		require.True(t, len(containers) == 2 && containers[0].Name == checkContainer && containers[0].RestartPolicy == nil,
			"init containers are %+v, want the check first, which ends before the sidecar starts", containers)
		want := append([]string{"network-check", "--result-file=/dev/termination-log", argument}, addresses...)
		require.Equal(t, want, containers[0].Args)
		require.True(t, containers[0].Image == "operator:1" && len(containers[0].VolumeMounts) == 0, "the check has something of the session: %+v", containers[0])
	}
}

// A check that does not succeed fails the session, which is not retried, unless its SessionRunner accepts that.
func TestTheResultOfTheNetworkCheckIsReported(t *testing.T) {
	const failed, creating = v1alpha1.SessionFailed, v1alpha1.SessionCreating
	const isTrue, isFalse, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for title, test := range map[string]struct {
		end        func(*scenario)
		wantStatus metav1.ConditionStatus
		wantReason string
		wantPhase  v1alpha1.SessionPhase
	}{
		"the check has not ended": {func(*scenario) {}, unknown, v1alpha1.ReasonNetworkCheckPending, creating},
		"enforced":                {func(s *scenario) { s.endCheck(networkcheck.Enforced, 0) }, isTrue, v1alpha1.ReasonNetworkPolicyEnforced, creating},
		"not enforced": {func(s *scenario) {
			s.endCheck(networkcheck.NotEnforced, networkcheck.ExitNotEnforced)
		}, isFalse, v1alpha1.ReasonNetworkNotEnforced, failed},
		"not enforced, accepted": {func(s *scenario) { s.endCheck(networkcheck.NotEnforced, 0) }, isFalse, v1alpha1.ReasonNetworkNotEnforced, creating},
		"unknown": {func(s *scenario) {
			s.endCheck(networkcheck.Unknown, networkcheck.ExitUnknown)
		}, unknown, v1alpha1.ReasonNetworkEnforcementUnknown, failed},
		"killed": {func(s *scenario) { s.endCheck(networkcheck.Unknown, 137) }, unknown, v1alpha1.ReasonNetworkEnforcementUnknown, failed},
		"enforced, Pod deleted": {func(s *scenario) {
			s.endCheck(networkcheck.Enforced, 0).startRunner().decideAndRecord()
			s.Pods = nil
		}, isTrue, v1alpha1.ReasonNetworkPolicyEnforced, v1alpha1.SessionRunning},
	} {
		t.Run(title, func(t *testing.T) {
			s := newCheckedScenario(t, withRetryLimit(3)).startChecked()
			test.end(s)
			s.decideAndRecord()
			s.wantCondition(v1alpha1.ConditionNetworkRestricted, test.wantStatus, test.wantReason)
			status := &s.Session.Status
			require.True(t, status.Phase == test.wantPhase && (status.Phase != failed || status.Attempts[0].Reason == test.wantReason),
				"phase %s, %+v", status.Phase, status.Attempts)
		})
	}
}

func TestSessionWaitsWhileTheAddressOfTheOperatorIsUnknown(t *testing.T) {
	s := newCheckedScenario(t)
	s.NetworkCheck.Addresses = nil
	decision := s.decideAndRecord()
	require.True(t, decision.CreateJob == nil && decision.RequeueAfter <= addressInterval && decision.RequeueAfter > 0,
		"a Job %v, next decision after %s; want none, and after %s", decision.CreateJob, decision.RequeueAfter, addressInterval)
	s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonNetworkEnforcementUnknown)
	s.NetworkCheck.Addresses = testCheck.Addresses
	s.startAttempt()
}

func TestSessionRunnerCanAcceptANetworkThatIsNotEnforced(t *testing.T) {
	s := newCheckedScenario(t)
	s.Runner.Spec.Network.Isolation = v1alpha1.NetworkIsolationPreferred
	s.startChecked()
	require.Contains(t, strings.Join(s.podSpec().InitContainers[0].Args, " "), "--report-only=true")
	s = newCheckedScenario(t)
	s.Runner.Spec.Network.Isolation, s.NetworkCheck.Addresses = v1alpha1.NetworkIsolationPreferred, nil
	s.startAttempt()
}

func TestPoliciesForImagesDoNotConcernTheNetworkCheck(t *testing.T) {
	s := newCheckedScenario(t)
	s.Policies = testbuilder.AllowImages("runner:*")
	s.startAttempt()
}

func TestNetworkIsCheckedUnlessTheSessionRunnerMayAllowWhatMustFail(t *testing.T) {
	peer := func(p networkingv1.NetworkPolicyPeer) v1alpha1.SessionEgress { return v1alpha1.SessionEgress{To: &p} }
	operator := &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "yardmaster"}}
	other := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "git"}}
	for title, test := range map[string]struct {
		egress []v1alpha1.SessionEgress
		want   bool
	}{
		"no egress":                         {nil, true},
		"public addresses":                  {[]v1alpha1.SessionEgress{{Profile: v1alpha1.EgressPublicOnly}}, true},
		"a public network":                  {[]v1alpha1.SessionEgress{{To: testbuilder.Block("140.82.112.0/20")}}, true},
		"all addresses, one port":           {[]v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0"), Ports: testbuilder.PortRange(443, 443)}}, true},
		"all addresses, the port by UDP":    {[]v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0"), Ports: []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(deniedPort, nil, corev1.ProtocolUDP)}}}, true},
		"all addresses, the port":           {[]v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0"), Ports: testbuilder.PortRange(deniedPort, deniedPort)}}, false},
		"all addresses, all ports":          {[]v1alpha1.SessionEgress{{To: testbuilder.Block("0.0.0.0/0")}}, false},
		"a private network":                 {[]v1alpha1.SessionEgress{{Profile: v1alpha1.EgressPublicOnly}, {To: testbuilder.Block("10.1.0.0/16")}}, false},
		"an IPv6 network":                   {[]v1alpha1.SessionEgress{{To: testbuilder.Block("2a00::/16")}}, false},
		"Pods of the namespace":             {[]v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{PodSelector: operator})}, true},
		"other Pods of all namespaces":      {[]v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: other})}, true},
		"the operator's Pods":               {[]v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: operator})}, false},
		"all Pods of some namespaces":       {[]v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: other})}, false},
		"a private network, as a peer":      {[]v1alpha1.SessionEgress{peer(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.1.0.0/16"}})}, false},
		"a network that contains a private": {[]v1alpha1.SessionEgress{{To: testbuilder.Block("8.0.0.0/6")}}, false},
	} {
		t.Run(title, func(t *testing.T) {
			s := newCheckedScenario(t)
			for i := range test.egress {
				if test.egress[i].Ports == nil {
					test.egress[i].Ports = testbuilder.PortRange(1, 65535)
				}
			}
			s.Runner.Spec.Network.Egress = test.egress
			s.startChecked()
			hasCheck := slices.ContainsFunc(s.newestJob().Spec.Template.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == checkContainer })
			own := findNetworkPolicy(s.NetworkPolicies, NetworkPolicyName(s.Session.Name))
			allowsControl := slices.ContainsFunc(own.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
				return len(rule.Ports) == 1 && rule.Ports[0].Port.IntVal == networkcheck.ControlPort
			})
			require.True(t, hasCheck == test.want && allowsControl == test.want,
				"check: %t, control port allowed: %t, want %t", hasCheck, allowsControl, test.want)
		})
	}
}
