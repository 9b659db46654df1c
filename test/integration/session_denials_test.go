package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// randomSpecCount returns the number of random specs: SESSION_SPECS, or a number that is fast enough
// for every test run.
func randomSpecCount(t *testing.T) int { return testbuilder.NumberFromEnv(t, "SESSION_SPECS", 60) }

// If the API server accepts a session and its SessionRunner, the operator either refuses the session,
// or its Pod passes the Pod Security Standard restricted. The webhook is off, because it would refuse
// the session first.
func TestRandomSessionPodsAreAccepted(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted", testenv.WebhookLabel: "off"})
	var outcomes sessionOutcomes
	for first, all := 0, randomSpecCount(t); first < all; first += 20 {
		var sessions []*sessionTest
		for i := first; i < min(first+20, all); i++ {
			if s := createRandomSession(t, ns, i); s != nil {
				sessions = append(sessions, s)
			} else {
				outcomes.invalid++
			}
		}
		for _, s := range sessions {
			outcomes.countOutcome(t, s)
		}
	}
	t.Logf("of %d random specs %d were created, %d refused by the operator, %d rejected as invalid by the API server, %d denied",
		randomSpecCount(t), outcomes.created, outcomes.refused, outcomes.invalid, outcomes.denied)
	if outcomes.created < randomSpecCount(t)/3 {
		t.Errorf("only %d specs were created", outcomes.created)
	}
	wantEveryJobToCreateItsPod(t, ns)
}

// sessionOutcomes counts the outcomes of random sessions.
type sessionOutcomes struct{ created, refused, invalid, denied int }

func (f *sessionOutcomes) countOutcome(t *testing.T, s *sessionTest) {
	t.Helper()
	var now *v1alpha1.AgenticSession
	poll.Until(t, s.key.Name+" to be accepted or refused", func() bool {
		now = s.getSession()
		return now.Status.Phase != "" && now.Status.Phase != v1alpha1.SessionPending || meta.IsStatusConditionFalse(now.Status.Conditions, v1alpha1.ConditionSpecAccepted)
	})
	switch {
	case meta.IsStatusConditionFalse(now.Status.Conditions, v1alpha1.ConditionSpecAccepted):
		f.refused++
	case len(now.Status.Attempts) > 0 && now.Status.Attempts[0].Reason != v1alpha1.ReasonCompleted:
		f.denied++
		t.Errorf("%s: %s: %s", s.key.Name, now.Status.Attempts[0].Reason, now.Status.Attempts[0].Message)
	default:
		f.created++
	}
}

// wantEveryJobToCreateItsPod waits until each Job has created its Pod: a Pod that passed the dry run
// must not be denied later.
func wantEveryJobToCreateItsPod(t *testing.T, ns string) {
	t.Helper()
	poll.Until(t, "each Job to create its Pod", func() bool {
		var jobs batchv1.JobList
		require.NoError(t, cluster.List(t.Context(), &jobs, client.InNamespace(ns)))
		for i := range jobs.Items {
			if status := &jobs.Items[i].Status; status.Active+status.Succeeded+status.Failed == 0 {
				return false
			}
		}
		return true
	})
}

// createRandomSession creates a session and its SessionRunner. It returns nil if the API server
// rejects one of them.
func createRandomSession(t *testing.T, ns string, i int) *sessionTest {
	t.Helper()
	r := randomSource{rand.New(rand.NewPCG(uint64(i), 0))}
	runner, s := r.randomRunner(), r.randomSession()
	s.Name, s.Namespace, s.Spec.Runner = fmt.Sprintf("random-%04d", i), ns, fmt.Sprintf("random-%04d", i)
	runner.Name, runner.Namespace = s.Name, ns
	for _, object := range []client.Object{runner, s} {
		if err := cluster.Create(t.Context(), object); apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
			return nil
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return &sessionTest{t, client.ObjectKeyFromObject(s)}
}

// randomSource generates random specs.
type randomSource struct{ *rand.Rand }

func (d randomSource) isRare() bool   { return d.IntN(8) == 0 }
func (d randomSource) isCommon() bool { return d.IntN(2) == 0 }

func oneOf[T any](d randomSource, all ...T) T { return all[d.IntN(len(all))] }

func (d randomSource) randomRunner() *v1alpha1.SessionRunner {
	r := &v1alpha1.SessionRunner{}
	r.Spec.Image = oneOf(d, "runner:1", "registry.example:5000/a/b@sha256:"+strings.Repeat("0", 64), "busybox:1.37")
	r.Spec.Allowed.Images = []string{"other:1"}
	r.Spec.ActivityLease = d.isCommon()
	if d.isCommon() {
		testbuilder.RunnerPod(&r.Spec).SecurityContext.RunAsUser = oneOf(d, new(int64(65532)), new(int64(1)), new(int64(2147483647)))
		testbuilder.RunnerPod(&r.Spec).SecurityContext.RunAsGroup = oneOf(d, nil, new(int64(1)))
	}
	if d.isCommon() {
		testbuilder.RunnerContainer(&r.Spec).Command, testbuilder.RunnerContainer(&r.Spec).Args = []string{"/bin/sh", "-c"}, []string{"$(HOME) $$ `id`"}
	}
	if d.isCommon() {
		testbuilder.RunnerContainer(&r.Spec).Env = []corev1.EnvVar{d.randomVariable("A"), d.randomVariable("HTTP_PROXY"), d.randomVariable(oneOf(d, "B", "B", "B", "LD_PRELOAD", "PATH"))}
	}
	testbuilder.RunnerContainer(&r.Spec).Resources = d.randomResources()
	if d.isCommon() {
		r.Spec.Limits.MaxResources = d.randomQuantities()
	}
	for i := range d.IntN(3) {
		testbuilder.RunnerPod(&r.Spec).InitContainers = append(testbuilder.RunnerPod(&r.Spec).InitContainers, d.randomSidecar(i))
	}
	if d.isCommon() {
		r.Spec.Network.Egress = []v1alpha1.SessionEgress{{
			To: testbuilder.Block(oneOf(d, "10.0.0.0/8", "0.0.0.0/0", "::/0", "169.254.169.254/32")), Ports: testbuilder.Ports(443),
		}}
	}
	if !d.isRare() {
		r.Spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("token", "k", oneOf(d, "l", "m.n", "PATH")), testbuilder.Source("other")}
	}
	if !r.Spec.ActivityLease && d.isCommon() {
		testbuilder.RunnerPod(&r.Spec).ServiceAccountName = oneOf(d, "", "default")
		testbuilder.MountVolume(&r.Spec, "tokens", "/var/run/secrets/tokens", testbuilder.Tokens(corev1.ServiceAccountTokenProjection{
			Audience: oneOf(d, "cloud.example", "https://kubernetes.default.svc"), Path: "a",
		}))
	}
	r.Spec.Network.Port = oneOf(d, int32(0), 1024, 65535)
	return r
}

func (d randomSource) randomVariable(name string) corev1.EnvVar {
	return oneOf(d,
		corev1.EnvVar{Name: name, Value: "x"},
		corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "token"}, Key: "k"}}},
		corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: oneOf(d, "metadata.name", "status.hostIP", "spec.serviceAccountName")}}},
		corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
	)
}

func (d randomSource) randomResources() corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{}
	if d.isCommon() {
		r.Requests = d.randomQuantities()
	}
	if d.isCommon() {
		r.Limits = d.randomQuantities()
	}
	return r
}

func (d randomSource) randomQuantities() corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, one := range []struct {
		name    corev1.ResourceName
		amounts []string
	}{
		{corev1.ResourceCPU, []string{"500m", "1"}},
		{corev1.ResourceMemory, []string{"64Mi", "1Gi", "4Gi"}},
		{corev1.ResourceEphemeralStorage, []string{"1Gi", "4Gi"}},
		{"example.com/gpu", []string{"1"}},
		{"hugepages-2Mi", []string{"4Mi"}},
	} {
		if d.isRare() {
			list[one.name] = resource.MustParse(oneOf(d, one.amounts...))
		}
	}
	return list
}

func (d randomSource) randomSidecar(i int) corev1.Container {
	s := testbuilder.Sidecar(fmt.Sprintf("side-%d", i), "side:1")
	if d.isCommon() {
		s = testbuilder.SidecarWithWorkspace(s.Name, s.Image)
	}
	s.Resources = d.randomResources()
	if d.isRare() {
		s.Name = oneOf(d, "init", "inputs", "workspace", strings.Repeat("a", 63))
	}
	if d.isCommon() {
		s.Env = []corev1.EnvVar{d.randomVariable("C")}
	}
	if d.isCommon() {
		s.StartupProbe = &corev1.Probe{PeriodSeconds: oneOf(d, int32(0), 1)}
		s.StartupProbe.ProbeHandler = oneOf(d,
			corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
			corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80), Host: oneOf(d, "", "169.254.169.254")}},
			corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80), Path: "/", Host: oneOf(d, "", "localhost", "10.0.0.1")}},
			corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 80}},
		)
	}
	return s
}

func (d randomSource) randomSession() *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{}}
	s.Spec.Prompt = oneOf(d, "do it", "$(PATH) \x01 {{.}}", strings.Repeat("long ", 5000))
	s.Spec.Interactive = d.isCommon()
	if d.isCommon() {
		s.Spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: oneOf[v1alpha1.GitURL](d, "https://git.example/a/b.git", "git@git.example:a/b", "ssh://git@git.example/a")}}}
	}
	if d.isCommon() {
		s.Spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"X": "$(A)", oneOf(d, "Y", "Z", "_", "A"): "\n"}
	}
	if d.isCommon() {
		s.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: oneOf(d, "token", "token", "token", "fix-inputs-0123456789")}}}}
	}
	if d.isCommon() {
		s.Spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "token"}, MountPath: oneOf(d, "", "/secrets/a")}, {LocalReference: v1alpha1.LocalReference{Name: "other"}}}
	}
	if d.isRare() {
		s.Spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "token"}, MountPath: oneOf(d, "/secrets/a", "/secrets/..", "/proc")}, {LocalReference: v1alpha1.LocalReference{Name: "other"}, MountPath: "/secrets/a"}}
	}
	if d.isRare() {
		s.Spec.Image = oneOf(d, "other:1", "evil:1")
	}
	if d.isRare() {
		s.Spec.Resources = new(d.randomResources())
	}
	if d.isCommon() {
		s.Spec.Workspace = &v1alpha1.WorkspaceClaim{Size: oneOf(d, nil, new(resource.MustParse("1Gi")), new(resource.MustParse("10Gi"))), Retention: oneOf(d, v1alpha1.WorkspaceDelete, v1alpha1.WorkspaceRetain)}
	}
	s.Spec.Limits.Timeout = oneOf(d, nil, v1alpha1.NewDuration(0), v1alpha1.NewDuration(time.Hour))
	return s
}
