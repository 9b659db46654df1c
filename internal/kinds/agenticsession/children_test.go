package agenticsession

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func objectKinds(objects []decision.Object) []string {
	var all []string
	for _, object := range objects {
		all = append(all, object.GetObjectKind().GroupVersionKind().Kind)
	}
	return all
}

// newFullScenario returns a session that uses every feature.
func newFullScenario(t *testing.T) *scenario {
	t.Helper()
	s := newScenario(t, setInteractive, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.Workspace = &v1alpha1.WorkspaceClaim{}
		spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"TOKEN": "hunter2", "RUNNER_TYPE": "x"}
		spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "git"}}, {LocalReference: v1alpha1.LocalReference{Name: "key"}, MountPath: "/secrets/ssh"}}
		spec.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
		spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: "git@a.b:c/d.git", Branch: "main"}}}
	})
	s.Runner.Spec.ActivityLease = true
	s.Runner.Spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("git"), testbuilder.Source("key", "id_ed25519")}
	s.Runner.Spec.Allowed.ConfigMaps = []v1alpha1.SessionSource{testbuilder.Source("settings", "COLOR")}
	testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.SidecarWithWorkspace("proxy", "proxy:1"), testbuilder.Sidecar("tools", "tools:1")}
	testbuilder.RunnerContainer(&s.Runner.Spec).Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://127.0.0.1:3128"}}
	return s
}

func TestChildObjectsAreCreatedInOrderBeforeTheJob(t *testing.T) {
	decision := newScenario(t).decideAndRecord()
	require.Equal(t, []string{"NetworkPolicy", "ServiceAccount", "NetworkPolicy", "Secret"}, objectKinds(decision.ApplyObjects))
	decision = newFullScenario(t).decideAndRecord()
	want := []string{"NetworkPolicy", "ServiceAccount", "NetworkPolicy", "Secret", "PersistentVolumeClaim", "Service", "Lease", "Role", "RoleBinding"}
	require.Equal(t, want, objectKinds(decision.ApplyObjects))
	require.True(t, decision.DryRunPod != nil && decision.CreateJob != nil, "the decision has no dry-run Pod or no Job")
}

func TestChildObjectsHaveNonBlockingOwnerReference(t *testing.T) {
	d := newFullScenario(t).decideAndRecord()
	want := []metav1.OwnerReference{{APIVersion: "yardmaster.dev/v1alpha1", Kind: "AgenticSession", Name: "fix", UID: "session", Controller: new(true)}}
	for _, object := range append(d.ApplyObjects[1:], decision.Object(d.CreateJob)) {
		assert.Equal(t, "owners of "+object.GetObjectKind().GroupVersionKind().Kind, want, object.GetOwnerReferences())
		require.True(t, len(object.GetFinalizers()) == 0 && object.GetLabels()[LabelSessionUID] == "session" && object.GetNamespace() == "ns",
			"%+v", object)
	}
}

func TestRetainedWorkspaceHasNoOwner(t *testing.T) {
	s := newFullScenario(t)
	s.Session.Spec.Workspace.Retention = v1alpha1.WorkspaceRetain
	claim := s.decideAndRecord().ApplyObjects[4]
	require.True(t, len(claim.GetOwnerReferences()) == 0 && decision.WasCreatedFor(s.Session, claim, LabelSessionUID), "%+v", claim)
}

func TestObjectNamesAreValidAndUnique(t *testing.T) {
	for _, name := range []string{"a", strings.Repeat("a", 52), strings.Repeat("a-", 25) + "bc", strings.Repeat("a", 51) + "b"} {
		s := newFullScenario(t)
		s.Session.Name = name
		s.Session.Status.Run, s.Session.Status.Attempt.Attempt = 2147483647, 99999
		s.Answers.Listed = true
		d := s.decideAndRecord()
		for _, object := range append(d.ApplyObjects, decision.Object(d.CreateJob)) {
			errs := validation.IsDNS1035Label(object.GetName())
			require.True(t, len(errs) == 0, "%T %s: %v", object, object.GetName(), errs)
			for key, value := range object.GetLabels() {
				errs := validation.IsValidLabelValue(value)
				require.True(t, len(errs) == 0, "%T %s=%s: %v", object, key, value, errs)
			}
		}
	}
	cut := map[string]bool{}
	for i := range 100 {
		cut[jobName(fmt.Sprintf("%s%02d", strings.Repeat("a", 50), i), 1000000, 10000)] = true
	}
	require.True(t, len(cut) == 100, "%d names of 100 sessions", len(cut))
}

// sessionrunner tests the addresses of DNS and of the profile.
func TestNetworkPolicyAllowsOnlySessionRunnerRules(t *testing.T) {
	newPolicy := func(network v1alpha1.SessionNetwork) (networkingv1.NetworkPolicySpec, *NetworkSettings) {
		s := newScenario(t, setInteractive)
		s.Network.DNSPort, s.Network.ClusterNetworks, s.Runner.Spec.Network = 5353, []netip.Prefix{netip.MustParsePrefix("8.8.0.0/16")}, network
		return s.decideAndRecord().ApplyObjects[2].(*networkingv1.NetworkPolicy).Spec, &s.Network
	}
	policy, settings := newPolicy(v1alpha1.SessionNetwork{})
	want := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{LabelSessionUID: "session"}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Egress:      []networkingv1.NetworkPolicyEgressRule{settings.AllowDNS()},
	}
	require.Equal(t, want, policy)
	ports := testbuilder.Ports(443)
	visitor := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ui"}}}
	policy, settings = newPolicy(v1alpha1.SessionNetwork{IngressFrom: []networkingv1.NetworkPolicyPeer{visitor}, Egress: []v1alpha1.SessionEgress{
		{To: testbuilder.Block("0.0.0.0/0", "10.0.0.0/8"), Ports: append(ports, sessionrunner.PolicyPort(8000, new(int32(8100)), corev1.ProtocolUDP))},
		{To: testbuilder.Block("169.254.10.0/24"), Ports: ports},
		{To: testbuilder.Block("::/0", "fe80::/10"), Ports: ports},
		{Profile: v1alpha1.EgressPublicOnly, Ports: ports},
	}})
	tcp := []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(443, nil, corev1.ProtocolTCP)}
	rule := func(peers ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyEgressRule {
		return networkingv1.NetworkPolicyEgressRule{To: peers, Ports: tcp}
	}
	want.Egress = append(want.Egress,
		rule(blockPeer("0.0.0.0/0", "10.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32")),
		rule(blockPeer("169.254.10.0/24")), rule(blockPeer("::/0", "fe80::/10", "fd00:ec2::/32", "fd20:ce::/32")), rule(settings.PublicPeers()...))
	want.Egress[1].Ports = append(slices.Clone(tcp), sessionrunner.PolicyPort(8000, new(int32(8100)), corev1.ProtocolUDP))
	want.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{visitor}, Ports: []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(8080, nil, corev1.ProtocolTCP)},
	}}
	require.Equal(t, want, policy)
}

func TestOnlyRunnersWithALeaseMayConnectToTheAPIServer(t *testing.T) {
	apiServer := []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{blockPeer("10.96.0.1/32")}}}
	for name, test := range map[string]struct {
		change func(*scenario)
		want   bool
	}{
		"with a Lease":    {func(s *scenario) { s.Runner.Spec.ActivityLease = true }, true},
		"without a Lease": {func(*scenario) {}, false},
		"only hosts": {func(s *scenario) {
			s.Runner.Spec.ActivityLease, s.Runner.Spec.Network.Egress = true, []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{"a.example"}}}
		}, true},
		"the attempt began with a Lease": {func(s *scenario) { s.Session.Status.Attempt.Limits.ActivityLease = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			s.Network.APIServer = apiServer
			test.change(s)
			policy := newSessionNetworkPolicy(s.Session, s.Runner, &s.Network, &s.NetworkCheck)
			got := slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool { return cmp.Equal(rule, apiServer[0]) })
			require.True(t, got == test.want, "allowed: %t: %+v", got, policy.Spec.Egress)
		})
	}
	s := newScenario(t).startAttempt().startRunner()
	s.Session.Status.Attempt.Limits.ActivityLease, s.Network.APIServer = true, apiServer
	s.createNetworkPolicies(s.decideAndRecord())
	s.Network.APIServer = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{blockPeer("10.96.0.2/32")}}}
	require.Contains(t, strings.Join(objectKinds(s.decideAndRecord().ApplyObjects), " "), "NetworkPolicy")
}

func TestNetworkConditionReportsMissingAndChangedPolicies(t *testing.T) {
	s := newScenario(t).startAttempt().startRunner()
	decision := s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkPolicyNotFound)
	s.createNetworkPolicies(decision)
	s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyApplied)
	s.Runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{To: testbuilder.Block("10.0.0.0/8"), Ports: testbuilder.Ports(443)}}
	s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkPolicyDiffers)
}

func TestInputsSecretIsImmutableAndNamedByContent(t *testing.T) {
	s := newFullScenario(t)
	secret := s.decideAndRecord().ApplyObjects[3].(*corev1.Secret)
	require.True(t, *secret.Immutable && string(secret.Data["prompt"]) == "do it" && string(secret.Data["env.TOKEN"]) == "hunter2", "%+v", secret)
	var in RunnerInputs
	require.NoError(t, json.Unmarshal(secret.Data["session.json"], &in))
	require.True(t, in.Name == "fix" && len(in.Repos) == 1 && in.Repos[0].Directory == "d" && in.Repos[0].URL == "git@a.b:c/d.git", "%+v", in)
	require.True(t, inputsNamePattern.MatchString(secret.Name), "%s does not match the pattern of inputs names", secret.Name)
	// The spec changes before the Job of the attempt is created.
	decision := s.updateSpec(func(spec *v1alpha1.AgenticSessionSpec) { spec.DisplayName = "other" }).decideAndRecord()
	require.True(t, decision.ApplyObjects[2].GetName() != secret.Name && decision.DeleteSecret == secret.Name,
		"inputs %s, deleted inputs %q", decision.ApplyObjects[2].GetName(), decision.DeleteSecret)
}

func TestJobContainsNoSecretValues(t *testing.T) {
	raw, err := json.Marshal(newFullScenario(t).decideAndRecord().CreateJob)
	require.NoError(t, err)
	for _, text := range []string{"do it", "hunter2"} {
		require.True(t, !strings.Contains(string(raw), text), "the Job contains %s", text)
	}
}

func TestJobSpec(t *testing.T) {
	decision := newFullScenario(t).decideAndRecord()
	spec := decision.CreateJob.Spec
	require.True(t, *spec.BackoffLimit == 0 && *spec.PodReplacementPolicy == batchv1.Failed && *spec.Parallelism == 1, "%+v", spec)
	require.True(t, spec.TTLSecondsAfterFinished == nil, "the Job is deleted after %v seconds", spec.TTLSecondsAfterFinished)
	pod := spec.Template.Spec
	require.True(t, pod.RestartPolicy == corev1.RestartPolicyNever && *pod.TerminationGracePeriodSeconds == GracePeriodSeconds &&
		!*pod.AutomountServiceAccountToken && !*pod.EnableServiceLinks && pod.ServiceAccountName == "fix-session", "%+v", pod)
	require.Equal(t, pod, decision.DryRunPod.Spec)
	for i := range pod.InitContainers {
		require.True(t, pod.InitContainers[i].RestartPolicy != nil && *pod.InitContainers[i].RestartPolicy == corev1.ContainerRestartPolicyAlways,
			"a sidecar has no restart policy Always, so the runner would wait for its end")
	}
}

func TestOnlyTheRunnerContainerHasAToken(t *testing.T) {
	for _, lease := range []bool{true, false} {
		s := newFullScenario(t)
		s.Runner.Spec.ActivityLease = lease
		decision := s.decideAndRecord()
		pod := decision.CreateJob.Spec.Template.Spec
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			_, mounted := mountsOf(&c)[tokenVolume]
			require.True(t, mounted == (lease && c.Name == v1alpha1.RunnerContainer), "activityLease %t: %s mounts the token: %t", lease, c.Name, mounted)
		}
		for _, object := range decision.ApplyObjects {
			if role, isRole := object.(*rbacv1.Role); isRole {
				isOfLease := slices.Equal(role.Rules[0].ResourceNames, []string{"fix"}) && slices.Equal(role.Rules[0].Resources, []string{"leases"})
				require.True(t, lease && len(role.Rules) == 1 && isOfLease, "activityLease %t: the Role allows %+v", lease, role.Rules)
			}
		}
	}
}

// A token without an audience would be for the API server, with the permissions of the ServiceAccount.
func TestTokensHaveTheirAudienceAndOnlyTheRunnerHasThem(t *testing.T) {
	s := newScenario(t)
	testbuilder.RunnerPod(&s.Runner.Spec).ServiceAccountName = "model-caller"
	testbuilder.MountVolume(&s.Runner.Spec, "tokens", "/var/run/secrets/tokens", testbuilder.Tokens(
		corev1.ServiceAccountTokenProjection{Audience: "cloud.example", Path: "cloud"},
		corev1.ServiceAccountTokenProjection{Audience: "vault.example", Path: "vault", ExpirationSeconds: new(int64(600))},
	))
	testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.Sidecar("proxy", "proxy:1")}
	pod := s.startAttempt().podSpec()
	require.True(t, pod.ServiceAccountName == "model-caller" && !*pod.AutomountServiceAccountToken,
		"ServiceAccount %s, its token is mounted: %t", pod.ServiceAccountName, *pod.AutomountServiceAccountToken)
	want := []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "cloud.example", Path: "cloud", ExpirationSeconds: new(int64(3600))}},
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault.example", Path: "vault", ExpirationSeconds: new(int64(600))}},
	}
	var got []corev1.VolumeProjection
	for _, volume := range pod.Volumes {
		if volume.Projected != nil {
			got = append(got, volume.Projected.Sources...)
		}
	}
	require.Equal(t, want, got)
	mount := mountsOf(&pod.Containers[0])["runner-tokens"]
	_, mounted := mountsOf(&pod.InitContainers[0])["runner-tokens"]
	require.True(t, !mounted && mount.MountPath == "/var/run/secrets/tokens" && mount.ReadOnly, "the runner mounts %+v, a sidecar: %t", mount, mounted)
}

func TestJobOfAnotherOwnerIsIgnored(t *testing.T) {
	s := newScenario(t)
	s.startAttempt()
	s.newestJob().OwnerReferences = nil
	s.Answers.Jobs = map[string]*batchv1.Job{"fix-r1-a1": nil}
	s.wantPhase(v1alpha1.SessionPending, "")
	require.True(t, s.Session.Status.Attempt.JobUID == "", "the session uses the Job of another owner")
}

func TestOrphanJobIsDeleted(t *testing.T) {
	s := newRunningScenario(t)
	orphan := s.newestJob().DeepCopy()
	orphan.Name, orphan.UID = "fix-r1-a7", "orphan"
	s.Jobs = append([]*batchv1.Job{orphan}, s.Jobs...)
	decision := s.decideAndRecord()
	require.True(t, len(decision.DeleteJobs) == 1 && decision.DeleteJobs[0].UID == "orphan", "Jobs %v are deleted", decision.DeleteJobs)
}
