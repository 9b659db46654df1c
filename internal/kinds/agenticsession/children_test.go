package agenticsession

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
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

func TestChildObjectsAreCreatedInOrderBeforeTheJobAndOwnedBySession(t *testing.T) {
	d := newScenario(t).decideAndRecord()
	require.Equal(t, []string{"NetworkPolicy", "ServiceAccount", "NetworkPolicy", "Secret"}, objectKinds(d.ApplyObjects))
	s := newFullScenario(t)
	d = s.decideAndRecord()
	want := []string{"NetworkPolicy", "ServiceAccount", "NetworkPolicy", "Secret", "PersistentVolumeClaim", "Service", "Lease", "Role", "RoleBinding"}
	require.Equal(t, want, objectKinds(d.ApplyObjects))
	require.True(t, d.DryRunPod != nil, "the decision has no dry-run Pod")
	owners := []metav1.OwnerReference{{APIVersion: "yardmaster.dev/v1alpha1", Kind: "AgenticSession", Name: "fix", UID: "session", Controller: new(true)}}
	for _, object := range append(d.ApplyObjects[1:], decision.Object(d.CreateJob)) {
		if owners[0].BlockOwnerDeletion = nil; object.GetObjectKind().GroupVersionKind().Kind == "Job" {
			owners[0].BlockOwnerDeletion = new(true)
		}
		assert.Equal(t, "owners of "+object.GetObjectKind().GroupVersionKind().Kind, owners, object.GetOwnerReferences())
		require.True(t, len(object.GetFinalizers()) == 0 && object.GetLabels()[LabelSessionUID] == "session" && object.GetNamespace() == "ns", "%+v", object)
	}
	s = newFullScenario(t)
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
	check := func(name string, change func(*scenario), want bool) {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			s.Network.APIServer = apiServer
			change(s)
			job, _ := newFacts(s.Observation).findJob("fix-r1-a1")
			policy := newSessionNetworkPolicy(s.Session, s.Runner, job, &s.Network, &s.NetworkCheck)
			got := slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool { return cmp.Equal(rule, apiServer[0]) })
			require.True(t, got == want, "allowed: %t: %+v", got, policy.Spec.Egress)
		})
	}
	check("with a Lease", func(s *scenario) { s.Runner.Spec.ActivityLease = true }, true)
	check("without a Lease", func(*scenario) {}, false)
	check("only hosts", func(s *scenario) {
		s.Runner.Spec.ActivityLease, s.Runner.Spec.Network.Egress = true, []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{"a.example"}}}
	}, true)
	check("the attempt began with a Lease", func(s *scenario) {
		s.Runner.Spec.ActivityLease = true
		s.startAttempt()
		s.Runner.Spec.ActivityLease = false
	}, true)
	check("the attempt began without a Lease", func(s *scenario) { s.startAttempt().Runner.Spec.ActivityLease = true }, false)
	s := newScenario(t).startAttempt().startRunner()
	s.Session.Status.Attempt.Limits.ActivityLease, s.Network.APIServer = true, apiServer
	s.createNetworkPolicies(s.decideAndRecord())
	s.Network.APIServer = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{blockPeer("10.96.0.2/32")}}}
	require.Contains(t, strings.Join(objectKinds(s.decideAndRecord().ApplyObjects), " "), "NetworkPolicy")
}

func TestChangedSessionRunnerDoesNotCutOffARunningSession(t *testing.T) {
	s := newScenario(t, setInteractive)
	s.Runner.Spec.Network.IngressFrom = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	first := s.decideAndRecord()
	s.createPlannedJob(first)
	s.createNetworkPolicies(first)
	s.startRunner()
	s.podSpec().Containers = ContainersToCache(s.podSpec().Containers)
	s.Runner.Spec.Network.Port = 9090
	delete(s.Children, ChildKey{"Service", ServiceName("fix")})
	applied := s.decideAndRecord().ApplyObjects
	require.Equal(t, []string{"Service"}, objectKinds(applied))
	require.Equal(t, 8080, applied[0].(*corev1.Service).Spec.Ports[0].Port)
	s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyApplied)
	next := s.exitRunner(0, "").reconcile().updateSpec(requestNextRun).decideAndRecord()
	require.Equal(t, 9090, next.ApplyObjects[2].(*networkingv1.NetworkPolicy).Spec.Ingress[0].Ports[0].Port.IntVal)
}

func TestNetworkConditionReportsMissingAndChangedPolicies(t *testing.T) {
	s := newScenario(t).startAttempt().startRunner()
	decision := s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkPolicyNotFound)
	s.createNetworkPolicies(decision)
	s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyApplied)
	s.Runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{To: testbuilder.Block("10.0.0.0/8")}, {Ports: testbuilder.Ports(443)}} // of an older CRD
	s.reconcile().wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyApplied)
	s.Runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{To: testbuilder.Block("10.0.0.0/8"), Ports: testbuilder.Ports(443)}}
	s.decideAndRecord()
	s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkPolicyDiffers)
	s.createNetworkPolicies(s.decideAndRecord())
	s.Runner.Spec.Network.Egress = nil // its own policy of before does not keep the next attempt waiting
	s.exitRunner(0, "").reconcile().updateSpec(requestNextRun).startAttempt()
}

func TestTheInputsAreInAnImmutableSecretNamedByContentAndNotInTheJob(t *testing.T) {
	s := newFullScenario(t)
	d := s.decideAndRecord()
	job, err := json.Marshal(d.CreateJob)
	require.True(t, err == nil && !strings.Contains(string(job), "do it") && !strings.Contains(string(job), "hunter2"), "%v: %s", err, job)
	secret := d.ApplyObjects[3].(*corev1.Secret)
	require.True(t, *secret.Immutable && string(secret.Data["prompt"]) == "do it" && string(secret.Data["env.TOKEN"]) == "hunter2", "%+v", secret)
	var in RunnerInputs
	require.NoError(t, json.Unmarshal(secret.Data["session.json"], &in))
	require.True(t, in.Name == "fix" && len(in.Repos) == 1 && in.Repos[0].Directory == "d" && in.Repos[0].URL == "git@a.b:c/d.git", "%+v", in)
	require.True(t, inputsNamePattern.MatchString(secret.Name), "%s does not match the pattern of inputs names", secret.Name)
	// The spec changes before the Job of the attempt is created.
	decision := s.updateSpec(func(spec *v1alpha1.AgenticSessionSpec) { spec.DisplayName = "other" }).decideAndRecord()
	require.True(t, decision.ApplyObjects[2].GetName() != secret.Name && decision.DeleteSecret == secret.Name, "%+v", decision)
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
	require.Equal(t, "model-caller", FirstPod(s.Session, s.Runner).Spec.ServiceAccountName)
	pod := s.startAttempt().podSpec()
	require.True(t, pod.ServiceAccountName == "model-caller" && !*pod.AutomountServiceAccountToken, "ServiceAccount %s", pod.ServiceAccountName)
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

func TestPodHasTheOptionsOfItsSessionRunner(t *testing.T) {
	s := newFullScenario(t)
	spec := &s.Runner.Spec
	template := testbuilder.RunnerPod(spec)
	template.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(maxUserID)), RunAsGroup: new(int64(maxUserID))}
	template.HostUsers, template.NodeSelector, template.PriorityClassName = new(false), map[string]string{"pool": "agents"}, "low"
	template.Containers[0].ImagePullPolicy, template.InitContainers[1].ImagePullPolicy = corev1.PullAlways, corev1.PullNever
	template.Tolerations = []corev1.Toleration{{Key: "agents", Operator: corev1.TolerationOpExists}}
	spec.Template.Labels, spec.Template.Annotations = map[string]string{"team": "a"}, map[string]string{"cost": "7"}
	spec.CABundle = &v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "cas"}, Key: "all.pem"}
	template.Containers[0].Env = append(template.Containers[0].Env, corev1.EnvVar{Name: "CURL_CA_BUNDLE", Value: "/own.pem"})
	testbuilder.MountVolume(spec, "models", "/models", testbuilder.ClaimVolume("models"))
	testbuilder.MountVolume(spec, "docs", "/srv/docs", testbuilder.ConfigMapVolume("docs"))
	sidecar := &template.InitContainers[0]
	sidecar.VolumeMounts = append(sidecar.VolumeMounts, corev1.VolumeMount{Name: "docs", MountPath: "/docs"})
	decision := s.decideAndRecord()
	s.createPlannedJob(decision)
	created := decision.CreateJob.Spec.Template
	pod := created.Spec
	require.True(t, !*pod.HostUsers && pod.NodeSelector["pool"] == "agents" && pod.PriorityClassName == "low" && pod.Tolerations[0].Key == "agents" &&
		*pod.SecurityContext.RunAsUser == maxUserID && *pod.SecurityContext.FSGroup == maxUserID &&
		created.Labels["team"] == "a" && created.Labels[LabelSessionUID] == "session" && created.Annotations["cost"] == "7", "%+v", created)
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		env := map[string]string{}
		for _, variable := range c.Env {
			env[variable.Name] = variable.Value
		}
		require.Equal(t, map[string]corev1.PullPolicy{"runner": corev1.PullAlways, "tools": corev1.PullNever}[c.Name], c.ImagePullPolicy)
		require.Equal(t, "/etc/agentic-ca/ca.crt /etc/agentic-ca/ca.crt", env["SSL_CERT_FILE"]+" "+env["NODE_EXTRA_CA_CERTS"])
		require.True(t, c.Name != v1alpha1.RunnerContainer || env["CURL_CA_BUNDLE"] == "/own.pem", "it is %s", env["CURL_CA_BUNDLE"])
	}
	mounts := mountsOf(&pod.Containers[0])
	for name, path := range map[string]string{"runner-models": "/models", "runner-docs": "/srv/docs", "ca-bundle": "/etc/agentic-ca"} {
		mount := mounts[name]
		require.True(t, mount.MountPath == path && mount.ReadOnly, "volume %s is mounted as %+v, want read-only at %s", name, mount, path)
	}
	mounts = mountsOf(&pod.InitContainers[0])
	docs, workspace := mounts["runner-docs"], mounts[workspaceVolume]
	require.True(t, docs.MountPath == "/docs" && docs.ReadOnly && workspace.MountPath == workspacePath && !workspace.ReadOnly, "%+v", mounts)
	require.Equal(t, created.Labels, decision.DryRunPod.Labels)
	require.Equal(t, "7", decision.DryRunPod.Annotations["cost"])
}

// A SessionRunner of an older CRD, or without one, may have any field of a Pod.
func TestFieldsOfATemplateThatDoNotExistHaveNoEffect(t *testing.T) {
	newTemplate := func(change func(pod *corev1.PodSpec)) corev1.PodTemplateSpec {
		s := newFullScenario(t)
		testbuilder.MountVolume(&s.Runner.Spec, "docs", "/srv/docs", testbuilder.SecretVolume("docs"))
		change(testbuilder.RunnerPod(&s.Runner.Spec))
		return s.startAttempt().newestJob().Spec.Template
	}
	require.Equal(t, newTemplate(func(*corev1.PodSpec) {}), newTemplate(func(pod *corev1.PodSpec) {
		pod.HostNetwork, pod.HostPID, pod.HostIPC, pod.ShareProcessNamespace = true, true, true, new(true)
		pod.NodeName, pod.SchedulerName = "node", "other"
		pod.HostAliases = []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"a"}}}
		pod.DNSPolicy, pod.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.0.0.1"}}
		pod.AutomountServiceAccountToken, pod.DeprecatedServiceAccount = new(true), "admin"
		pod.SecurityContext.RunAsNonRoot, pod.SecurityContext.FSGroup = new(false), new(int64(0))
		pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		weaken(&pod.Containers[0])
		weaken(&pod.InitContainers[0])
		pod.Containers[0].Image = "evil:1"
		pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		pod.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		mount := &pod.Containers[0].VolumeMounts[0]
		mount.ReadOnly, mount.SubPath, mount.MountPropagation = false, "../..", new(corev1.MountPropagationBidirectional)
		pod.Volumes[0].Secret.DefaultMode = new(int32(0o777))
		pod.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "x"}}}
	}))
}

// Except the image of the network check, which is that of the operator.
func TestASessionWaitsUntilPoliciesAllowAllItsImages(t *testing.T) {
	for want, policies := range map[string]policy.Selection{
		`image "runner:1" of container "runner" is not allowed by Policy team, which allows: proxy:*`:     testbuilder.AllowImages("proxy:*"),
		`image "proxy:1" of init container "proxy" is not allowed by Policy team, which allows: runner:*`: testbuilder.AllowImages("runner:*"),
	} {
		s := newCheckedScenario(t)
		s.Policies = policies
		testbuilder.RunnerPod(&s.Runner.Spec).InitContainers = []corev1.Container{testbuilder.Sidecar("proxy", "proxy:1")}
		decision := s.decideAndRecord()
		require.True(t, decision.CreateJob == nil && len(decision.ApplyObjects) == 0, "the session starts: %+v", decision)
		s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonImageNotAllowed)
		require.Equal(t, want, s.findCondition(v1alpha1.ConditionReady).Message)
		s.Policies = testbuilder.AllowImages("proxy:*", "runner:*")
		s.startAttempt()
	}
}

func TestAChangedPolicyAffectsTheNextAttemptOnly(t *testing.T) {
	s := newScenario(t, withRetryLimit(1)).startAttempt().startRunner()
	s.Policies = testbuilder.AllowImages("other:*")
	s.wantPhase(v1alpha1.SessionRunning, "")
	s.exitRunner(1, "").advanceClock(time.Minute).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonImageNotAllowed)
}

// The operator may have ended between the record of an attempt and the creation of its Job.
func TestAnAttemptWithoutAJobIsNotContinuedAgainstAPolicy(t *testing.T) {
	s := newScenario(t)
	s.decideAndRecord()
	s.Policies = testbuilder.AllowImages("other:*")
	decision := s.decideAndRecord()
	require.True(t, decision.CreateJob == nil && decision.Status.Attempt.JobName == "", "the attempt continues: %+v", decision)
}

func envFromSecret(name, prefix string, optional *bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: optional}}
}

func envFromConfigMap(name string) corev1.EnvFromSource {
	return corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
}

func TestASessionGetsOnlyTheAllowedKeysOfSecretsAndConfigMaps(t *testing.T) {
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.EnvFrom = []corev1.EnvFromSource{envFromSecret("model", "MODEL_", new(true)), envFromConfigMap("settings"), envFromSecret("later", "", nil)}
		spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"LANGUAGE": "en"}
		spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "git"}}, {LocalReference: v1alpha1.LocalReference{Name: "model"}, Optional: true}}
	})
	testbuilder.RunnerContainer(&s.Runner.Spec).Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://127.0.0.1:3128"}}
	s.Runner.Spec.Allowed.Secrets = []v1alpha1.SessionSource{
		testbuilder.Source("model", "token", "url"), testbuilder.Source("later", "COLOR"), testbuilder.Source("unused", "a"), testbuilder.Source("git"),
	}
	s.Runner.Spec.Allowed.ConfigMaps = []v1alpha1.SessionSource{testbuilder.Source("settings", "COLOR", "LANGUAGE", "HTTPS_PROXY", "HOMEPAGE")}
	pod := s.startAttempt().podSpec()
	items := map[string][]corev1.KeyToPath{}
	for _, volume := range pod.Volumes {
		if volume.Secret != nil {
			items[volume.Secret.SecretName] = volume.Secret.Items
		}
	}
	require.True(t, len(items["git"]) == 0, "a Secret without a list of keys has the items %v", items["git"])
	require.Equal(t, []corev1.KeyToPath{{Key: "token", Path: "token"}, {Key: "url", Path: "url"}}, items["model"])
	c := pod.Containers[0]
	require.True(t, len(c.EnvFrom) == 0, "the Pod has envFrom %+v, which sets each key", c.EnvFrom)
	secret := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
	}
	configMap := &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "HOMEPAGE"}}
	want := []corev1.EnvVar{
		{Name: "COLOR", ValueFrom: secret("later", "COLOR", nil)}, // the last source takes precedence
		{Name: "HOMEPAGE", ValueFrom: configMap},
		{Name: "MODEL_token", ValueFrom: secret("model", "token", new(true))},
		{Name: "MODEL_url", ValueFrom: secret("model", "url", new(true))},
	}
	require.Equal(t, want, c.Env[len(c.Env)-len(want):])
	at := map[string][]int{}
	for i, variable := range c.Env {
		at[variable.Name] = append(at[variable.Name], i)
	}
	require.True(t, len(at["LANGUAGE"]) == 1 && len(at["HTTPS_PROXY"]) == 1, "a variable is set twice: %v", at)
	// Variables of the SessionRunner may refer to variables before them, and so to none of the session.
	language := at["LANGUAGE"][0]
	require.True(t, language > at["HTTPS_PROXY"][0] && c.Env[language].Value == "", "%+v", c.Env)
}
