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
	if diff := cmp.Diff([]string{"NetworkPolicy", "ServiceAccount", "NetworkPolicy", "Secret"}, objectKinds(decision.ApplyObjects)); diff != "" {
		t.Errorf("a simple session (-want, +got):\n%s", diff)
	}
	decision = newFullScenario(t).decideAndRecord()
	want := []string{"NetworkPolicy", "ServiceAccount", "NetworkPolicy", "Secret", "PersistentVolumeClaim", "Service", "Lease", "Role", "RoleBinding"}
	if diff := cmp.Diff(want, objectKinds(decision.ApplyObjects)); diff != "" {
		t.Errorf("a session with all features (-want, +got):\n%s", diff)
	}
	if decision.DryRunPod == nil || decision.CreateJob == nil {
		t.Error("the decision has no dry-run Pod or no Job")
	}
}

func TestChildObjectsHaveNonBlockingOwnerReference(t *testing.T) {
	d := newFullScenario(t).decideAndRecord()
	want := []metav1.OwnerReference{{APIVersion: "yardmaster.dev/v1alpha1", Kind: "AgenticSession", Name: "fix", UID: "session", Controller: new(true)}}
	for _, object := range append(d.ApplyObjects[1:], decision.Object(d.CreateJob)) {
		if diff := cmp.Diff(want, object.GetOwnerReferences()); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", object.GetObjectKind().GroupVersionKind().Kind, diff)
		}
		if len(object.GetFinalizers()) > 0 {
			t.Errorf("%s has a finalizer", object.GetName())
		}
		if object.GetLabels()[LabelSessionUID] != "session" || object.GetNamespace() != "ns" {
			t.Errorf("%s: labels %v, namespace %s", object.GetName(), object.GetLabels(), object.GetNamespace())
		}
	}
}

func TestRetainedWorkspaceHasNoOwner(t *testing.T) {
	s := newFullScenario(t)
	s.Session.Spec.Workspace.Retention = v1alpha1.WorkspaceRetain
	claim := s.decideAndRecord().ApplyObjects[4]
	if len(claim.GetOwnerReferences()) > 0 || !decision.WasCreatedFor(s.Session, claim, LabelSessionUID) {
		t.Errorf("%+v", claim)
	}
}

func TestObjectNamesAreValidAndUnique(t *testing.T) {
	for _, name := range []string{"a", strings.Repeat("a", 52), strings.Repeat("a-", 25) + "bc", strings.Repeat("a", 51) + "b"} {
		s := newFullScenario(t)
		s.Session.Name = name
		s.Session.Status.Run, s.Session.Status.Attempt.Attempt = 2147483647, 99999
		s.Answers.Listed = true
		d := s.decideAndRecord()
		for _, object := range append(d.ApplyObjects, decision.Object(d.CreateJob)) {
			if errs := validation.IsDNS1035Label(object.GetName()); len(errs) > 0 {
				t.Errorf("%T %s: %v", object, object.GetName(), errs)
			}
			for key, value := range object.GetLabels() {
				if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
					t.Errorf("%T %s=%s: %v", object, key, value, errs)
				}
			}
		}
	}
	cut := map[string]bool{}
	for i := range 100 {
		cut[jobName(fmt.Sprintf("%s%02d", strings.Repeat("a", 50), i), 1000000, 10000)] = true
	}
	if len(cut) != 100 {
		t.Errorf("%d names of 100 sessions", len(cut))
	}
}

func TestNetworkPolicyAllowsOnlySessionRunnerRules(t *testing.T) {
	s := newScenario(t, setInteractive)
	policy := s.decideAndRecord().ApplyObjects[2].(*networkingv1.NetworkPolicy)
	if len(policy.Spec.Ingress) != 0 || len(policy.Spec.PolicyTypes) != 2 || len(policy.Spec.Egress) != 1 {
		t.Errorf("%+v", policy.Spec)
	}
	if policy.Spec.PodSelector.MatchLabels[LabelSessionUID] != "session" {
		t.Errorf("the policy selects %v", policy.Spec.PodSelector)
	}
	peer := policy.Spec.Egress[0].To[0]
	if peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "kube-system" || peer.PodSelector.MatchLabels["k8s-app"] != "kube-dns" {
		t.Errorf("the DNS peer is %+v", peer)
	}
	s = newScenario(t, setInteractive)
	s.Runner.Spec.Network.Egress = []v1alpha1.SessionEgress{
		{To: testbuilder.Block("0.0.0.0/0", "10.0.0.0/8"), Ports: append(testbuilder.Ports(443), sessionrunner.PolicyPort(8000, new(int32(8100)), corev1.ProtocolUDP))},
		{To: testbuilder.Block("169.254.10.0/24"), Ports: testbuilder.Ports(80)},
		{To: testbuilder.Block("::/0", "fe80::/10"), Ports: testbuilder.Ports(443)},
	}
	s.Runner.Spec.Network.IngressFrom = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ui"}}}}
	policy = s.decideAndRecord().ApplyObjects[2].(*networkingv1.NetworkPolicy)
	var blocks []networkingv1.IPBlock
	for _, rule := range policy.Spec.Egress[1:] {
		blocks = append(blocks, *rule.To[0].IPBlock)
	}
	want := []networkingv1.IPBlock{
		{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32"}},
		{CIDR: "169.254.10.0/24"},
		{CIDR: "::/0", Except: []string{"fe80::/10", "fd00:ec2::/32", "fd20:ce::/32"}},
	}
	if diff := cmp.Diff(want, blocks); diff != "" {
		t.Errorf("egress (-want, +got):\n%s", diff)
	}
	if len(policy.Spec.Egress[1].Ports) != 2 || len(policy.Spec.Ingress) != 1 || policy.Spec.Ingress[0].Ports[0].Port.IntVal != 8080 {
		t.Errorf("%+v", policy.Spec)
	}
}

func TestPublicOnlyAllowsOnlyPublicAddresses(t *testing.T) {
	s := newScenario(t)
	s.Network.ClusterNetworks = []netip.Prefix{netip.MustParsePrefix("8.8.0.0/16"), netip.MustParsePrefix("2600:1f00::/32")}
	s.Runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{Profile: v1alpha1.EgressPublicOnly, Ports: testbuilder.Ports(443)}}
	policy := s.decideAndRecord().ApplyObjects[2].(*networkingv1.NetworkPolicy)
	for address, want := range map[string]bool{
		"1.1.1.1": true, "140.82.121.4": true, "172.15.255.255": true, "172.32.0.1": true, "100.63.0.1": true, "2606:4700::1111": true,
		"0.0.0.1": false, "10.1.2.3": false, "100.64.0.1": false, "100.100.100.200": false, "127.0.0.1": false, "168.63.129.16": false, "169.254.169.254": false,
		"172.16.0.1": false, "192.0.0.192": false, "192.168.1.1": false, "198.18.0.1": false, "203.0.113.1": false, "224.0.0.1": false, "255.255.255.255": false,
		"::1": false, "fe80::1": false, "fd00::1": false, "fd00:ec2::254": false, "fd20:ce::254": false, "ff02::1": false, "64:ff9b::a01:203": false,
		"2002:a01:203::1": false, "2001:db8::1": false, "2001::1": false, "::ffff:10.1.2.3": false,
		"8.8.8.8": false, "2600:1f00::1": false, // of the cluster
	} {
		ip := netip.MustParseAddr(address)
		contains := func(network string) bool { return netip.MustParsePrefix(network).Contains(ip) }
		got := slices.ContainsFunc(policy.Spec.Egress[1].To, func(peer networkingv1.NetworkPolicyPeer) bool {
			return contains(peer.IPBlock.CIDR) && !slices.ContainsFunc(peer.IPBlock.Except, contains)
		})
		if got != want {
			t.Errorf("%s is allowed: %t, want %t", address, got, want)
		}
	}
}

func TestDNSSettingsOfTheOperatorApply(t *testing.T) {
	s := newScenario(t)
	s.Network = NetworkSettings{
		DNSNamespace: "openshift-dns", DNSSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"dns": "default"}},
		DNSNetworks: []netip.Prefix{netip.MustParsePrefix("169.254.20.10/32")}, DNSPort: 5353,
	}
	rule := s.decideAndRecord().ApplyObjects[2].(*networkingv1.NetworkPolicy).Spec.Egress[0]
	want := []networkingv1.NetworkPolicyPeer{
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "openshift-dns"}}, PodSelector: s.Network.DNSSelector},
		{IPBlock: &networkingv1.IPBlock{CIDR: "169.254.20.10/32"}},
	}
	if diff := cmp.Diff(want, rule.To); diff != "" || rule.Ports[0].Port.IntVal != 5353 {
		t.Errorf("port %s, peers (-want, +got):\n%s", rule.Ports[0].Port, diff)
	}
}

func TestOnlyRunnersWithALeaseMayConnectToTheAPIServer(t *testing.T) {
	apiServer := []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.96.0.1/32"}}}}}
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
			if got != test.want {
				t.Errorf("allowed: %t, want %t: %+v", got, test.want, policy.Spec.Egress)
			}
		})
	}
	s := newScenario(t).startAttempt().startRunner()
	s.Session.Status.Attempt.Limits.ActivityLease, s.Network.APIServer = true, apiServer
	s.createNetworkPolicies(s.decideAndRecord())
	s.Network.APIServer = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.96.0.2/32"}}}}}
	if kinds := objectKinds(s.decideAndRecord().ApplyObjects); !slices.Contains(kinds, "NetworkPolicy") {
		t.Errorf("new addresses of the API server are not allowed: %v", kinds)
	}
}

func TestNetworkPoliciesAreReappliedWhileJobRuns(t *testing.T) {
	s := newScenario(t).startAttempt().startRunner()
	decision := s.decideAndRecord()
	if diff := cmp.Diff([]string{"NetworkPolicy", "NetworkPolicy"}, objectKinds(decision.ApplyObjects)); diff != "" {
		t.Error(diff)
	}
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
	if secret.Immutable == nil || !*secret.Immutable || string(secret.Data["prompt"]) != "do it" || string(secret.Data["env.TOKEN"]) != "hunter2" {
		t.Errorf("%+v", secret)
	}
	var in RunnerInputs
	if err := json.Unmarshal(secret.Data["session.json"], &in); err != nil {
		t.Fatal(err)
	}
	if in.Name != "fix" || len(in.Repos) != 1 || in.Repos[0].Directory != "d" || in.Repos[0].URL != "git@a.b:c/d.git" {
		t.Errorf("%+v", in)
	}
	if !inputsNamePattern.MatchString(secret.Name) {
		t.Errorf("%s does not match the pattern of inputs names", secret.Name)
	}
	// The spec changes before the Job of the attempt is created.
	decision := s.updateSpec(func(spec *v1alpha1.AgenticSessionSpec) { spec.DisplayName = "other" }).decideAndRecord()
	if decision.ApplyObjects[2].GetName() == secret.Name || decision.DeleteSecret != secret.Name {
		t.Errorf("inputs %s, deleted inputs %q", decision.ApplyObjects[2].GetName(), decision.DeleteSecret)
	}
}

func TestJobContainsNoSecretValues(t *testing.T) {
	raw, err := json.Marshal(newFullScenario(t).decideAndRecord().CreateJob)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"do it", "hunter2"} {
		if strings.Contains(string(raw), text) {
			t.Errorf("the Job contains %s", text)
		}
	}
}

func TestJobSpec(t *testing.T) {
	decision := newFullScenario(t).decideAndRecord()
	spec := decision.CreateJob.Spec
	if *spec.BackoffLimit != 0 || *spec.PodReplacementPolicy != batchv1.Failed || spec.TTLSecondsAfterFinished != nil || *spec.Parallelism != 1 {
		t.Errorf("%+v", spec)
	}
	pod := spec.Template.Spec
	if pod.RestartPolicy != corev1.RestartPolicyNever || *pod.TerminationGracePeriodSeconds != GracePeriodSeconds || *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks {
		t.Errorf("%+v", pod)
	}
	if diff := cmp.Diff(pod, decision.DryRunPod.Spec); diff != "" {
		t.Errorf("the dry run differs from the Job (-Job, +dry run):\n%s", diff)
	}
	for i := range pod.InitContainers {
		if pod.InitContainers[i].RestartPolicy == nil || *pod.InitContainers[i].RestartPolicy != corev1.ContainerRestartPolicyAlways {
			t.Error("a sidecar has no restart policy Always, so the runner would wait for its end")
		}
	}
	if pod.ServiceAccountName != "fix-session" {
		t.Errorf("the Pod runs as ServiceAccount %s", pod.ServiceAccountName)
	}
}

func TestOnlyTheRunnerContainerHasAToken(t *testing.T) {
	for _, lease := range []bool{true, false} {
		s := newFullScenario(t)
		s.Runner.Spec.ActivityLease = lease
		decision := s.decideAndRecord()
		pod := decision.CreateJob.Spec.Template.Spec
		mounts := func(c *corev1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == tokenVolume })
		}
		if mounts(&pod.Containers[0]) != lease {
			t.Errorf("activityLease %t, but token mounted %t", lease, !lease)
		}
		for i := range pod.InitContainers {
			if mounts(&pod.InitContainers[i]) {
				t.Error("a sidecar has the runner's token")
			}
		}
		for _, object := range decision.ApplyObjects {
			role, isRole := object.(*rbacv1.Role)
			if !isRole {
				continue
			}
			if !lease {
				t.Error("a Role exists without a Lease")
			}
			if len(role.Rules) != 1 || !slices.Equal(role.Rules[0].ResourceNames, []string{"fix"}) || !slices.Equal(role.Rules[0].Resources, []string{"leases"}) {
				t.Errorf("the Role allows %+v", role.Rules)
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
	pod := s.startAttempt().newestJob().Spec.Template.Spec
	if pod.ServiceAccountName != "model-caller" || *pod.AutomountServiceAccountToken {
		t.Errorf("ServiceAccount %s, its token is mounted: %t", pod.ServiceAccountName, *pod.AutomountServiceAccountToken)
	}
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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("projected sources (-want, +got):\n%s", diff)
	}
	mounts := func(c *corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "runner-tokens" && m.MountPath == "/var/run/secrets/tokens" && m.ReadOnly
		})
	}
	if !mounts(&pod.Containers[0]) || mounts(&pod.InitContainers[0]) {
		t.Error("the runner has no tokens, or a sidecar has them")
	}
}

func TestObjectOfAnotherOwnerIsNeverAdopted(t *testing.T) {
	s := newScenario(t)
	s.decideAndRecord()
	s.Refusal = &decision.Refusal{Class: decision.AlreadyExists, Kind: "Secret", Message: "Secret x is not this session's"}
	if d := s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonNameTaken); d.CreateJob != nil || len(d.ApplyObjects) > 0 {
		t.Error("the session creates objects after the refusal")
	}
	s.wantEvent(v1alpha1.EventNameTaken)
	s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonNameTaken)
	if d := s.advanceClock(2 * 60e9).decideAndRecord(); d.CreateJob == nil {
		t.Error("the attempt is not retried")
	}
	s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonNameTaken)
	s.Refusal = &decision.Refusal{Class: decision.AlreadyExists, Kind: "Secret", Message: "Secret x is not this session's"}
	s.advanceClock(8*60e9).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonNameTaken)
}

func TestJobOfAnotherOwnerIsIgnored(t *testing.T) {
	s := newScenario(t)
	s.startAttempt()
	s.newestJob().OwnerReferences = nil
	s.Answers.Jobs = map[string]*batchv1.Job{"fix-r1-a1": nil}
	s.wantPhase(v1alpha1.SessionPending, "")
	if s.Session.Status.Attempt.JobUID != "" {
		t.Error("the session uses the Job of another owner")
	}
}

func TestOrphanJobIsDeleted(t *testing.T) {
	s := newScenario(t).startAttempt().startRunner()
	s.decideAndRecord()
	orphan := s.newestJob().DeepCopy()
	orphan.Name, orphan.UID = "fix-r1-a7", "orphan"
	s.Jobs = append([]*batchv1.Job{orphan}, s.Jobs...)
	if decision := s.decideAndRecord(); len(decision.DeleteJobs) != 1 || decision.DeleteJobs[0].UID != "orphan" {
		t.Errorf("Jobs %v are deleted", decision.DeleteJobs)
	}
}

func TestNoJobIsCreatedWhilePreviousJobRuns(t *testing.T) {
	s := newScenario(t).startAttempt().setWaitingReason("ErrImagePull")
	s.advanceClock(600 * 1e9).decideAndRecord() // the session fails and deletes its Job
	s.markJobDeleted()
	if decision := s.updateSpec(requestNextRun).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonPreviousJobRunning); decision.CreateJob != nil {
		t.Error("a second Job is created")
	}
	s.removeJobAndPod().startAttempt().wantPhase(v1alpha1.SessionCreating, "")
}
