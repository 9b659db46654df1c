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
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// sessionSpecs is how many random specs are tried: SESSION_SPECS, or as many as a test of
// every day has time for.
func sessionSpecs(t *testing.T) int { return testbuilder.Number(t, "SESSION_SPECS", 60) }

// Whatever a session or its SessionRunner asks for that the API server takes as such: the
// operator refuses it itself, or its Pod passes PodSecurity restricted. The webhook is off: it
// would refuse before the operator has to.
func TestNoPodOfARandomSessionIsDenied(t *testing.T) {
	ns := newNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted", webhookLabel: "off"})
	var told fates
	for first, all := 0, sessionSpecs(t); first < all; first += 20 {
		var stories []*sessionStory
		for i := first; i < min(first+20, all); i++ {
			if s := tellRandomSession(t, ns, i); s != nil {
				stories = append(stories, s)
			} else {
				told.invalid++
			}
		}
		for _, s := range stories {
			told.add(t, s)
		}
	}
	t.Logf("of %d random specs %d were made, %d refused by the operator, %d by the API server as such, %d denied",
		sessionSpecs(t), told.made, told.refused, told.invalid, told.denied)
	if told.made < sessionSpecs(t)/3 {
		t.Errorf("%d specs were made: too few to show anything", told.made)
	}
	noJobFailsToMakeItsPod(t, ns)
}

// fates of random sessions.
type fates struct{ made, refused, invalid, denied int }

func (f *fates) add(t *testing.T, s *sessionStory) {
	t.Helper()
	var now *v1alpha1.AgenticSession
	eventually(t, s.key.Name+" to be decided", func() bool {
		now = s.now()
		return now.Status.Phase != "" && now.Status.Phase != v1alpha1.SessionPending || meta.IsStatusConditionFalse(now.Status.Conditions, v1alpha1.ConditionAccepted)
	})
	switch {
	case meta.IsStatusConditionFalse(now.Status.Conditions, v1alpha1.ConditionAccepted):
		f.refused++
	case len(now.Status.Runs) > 0 && now.Status.Runs[0].Reason != v1alpha1.ReasonCompleted:
		f.denied++
		t.Errorf("%s: %s: %s", s.key.Name, now.Status.Runs[0].Reason, now.Status.Runs[0].Message)
	default:
		f.made++
	}
}

// noJobFailsToMakeItsPod waits until each Job has made its Pod: what the trial let pass, the
// Job must not be denied.
func noJobFailsToMakeItsPod(t *testing.T, ns string) {
	t.Helper()
	eventually(t, "each Job to have made its Pod", func() bool {
		var jobs batchv1.JobList
		if err := cluster.List(t.Context(), &jobs, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		for i := range jobs.Items {
			if status := &jobs.Items[i].Status; status.Active+status.Succeeded+status.Failed == 0 {
				return false
			}
		}
		return true
	})
}

// tellRandomSession makes one with a SessionRunner of its own, or returns nil if the API
// server takes one of them for invalid.
func tellRandomSession(t *testing.T, ns string, i int) *sessionStory {
	t.Helper()
	r := dice{rand.New(rand.NewPCG(uint64(i), 0))}
	runner, s := r.runner(), r.session()
	s.Name, s.Namespace, s.Spec.Runner = fmt.Sprintf("random-%04d", i), ns, fmt.Sprintf("random-%04d", i)
	runner.Name, runner.Namespace = s.Name, ns
	for _, object := range []client.Object{runner, s} {
		if err := cluster.Create(t.Context(), object); apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
			return nil
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return &sessionStory{t, client.ObjectKeyFromObject(s)}
}

// dice throw specs.
type dice struct{ *rand.Rand }

// seldom, and often, say whether something is there.
func (d dice) seldom() bool { return d.IntN(8) == 0 }
func (d dice) often() bool  { return d.IntN(2) == 0 }

func oneOf[T any](d dice, all ...T) T { return all[d.IntN(len(all))] }

func (d dice) runner() *v1alpha1.SessionRunner {
	r := &v1alpha1.SessionRunner{}
	r.Spec.Image = oneOf(d, "runner:1", "registry.example:5000/a/b@sha256:"+strings.Repeat("0", 64), "busybox:1.37")
	r.Spec.AllowedImages = []string{"other:1"}
	r.Spec.ActivityLease = d.often()
	if d.often() {
		r.Spec.RunAsUser = oneOf(d, new(int64(65532)), new(int64(1)), new(int64(2147483647)))
		r.Spec.RunAsGroup = oneOf(d, nil, new(int64(1)))
	}
	if d.often() {
		r.Spec.Command, r.Spec.Args = []string{"/bin/sh", "-c"}, []string{"$(HOME) $$ `id`"}
	}
	if d.often() {
		r.Spec.Env = []corev1.EnvVar{d.env("A"), d.env("HTTP_PROXY"), d.env(oneOf(d, "B", "B", "B", "LD_PRELOAD", "PATH"))}
	}
	r.Spec.Resources = d.resources()
	if d.often() {
		r.Spec.MaxResources = d.quantities()
	}
	for i := range d.IntN(3) {
		r.Spec.Sidecars = append(r.Spec.Sidecars, d.sidecar(i))
	}
	if d.often() {
		r.Spec.Egress = []v1alpha1.SessionEgress{{
			CIDR: oneOf(d, "10.0.0.0/8", "0.0.0.0/0", "::/0", "169.254.169.254/32"), Ports: []v1alpha1.SessionPort{{Port: 443}},
		}}
	}
	if d.seldom() {
		r.Spec.AllowedSecrets = &[]string{"token"}
	}
	r.Spec.Port = oneOf(d, int32(0), 1024, 65535)
	return r
}

func (d dice) env(name string) corev1.EnvVar {
	return oneOf(d,
		corev1.EnvVar{Name: name, Value: "x"},
		corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "token"}, Key: "k"}}},
		corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: oneOf(d, "metadata.name", "status.hostIP", "spec.serviceAccountName")}}},
		corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
	)
}

func (d dice) resources() v1alpha1.SessionResources {
	r := v1alpha1.SessionResources{}
	if d.often() {
		r.Requests = d.quantities()
	}
	if d.often() {
		r.Limits = d.quantities()
	}
	return r
}

func (d dice) quantities() corev1.ResourceList {
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
		if d.seldom() {
			list[one.name] = resource.MustParse(oneOf(d, one.amounts...))
		}
	}
	return list
}

func (d dice) sidecar(i int) v1alpha1.SessionSidecar {
	s := v1alpha1.SessionSidecar{Name: fmt.Sprintf("side-%d", i), Image: "side:1", Workspace: d.often(), Resources: d.resources()}
	if d.seldom() {
		s.Name = oneOf(d, "init", "inputs", "workspace", strings.Repeat("a", 63))
	}
	if d.often() {
		s.Env = []corev1.EnvVar{d.env("C")}
	}
	if d.often() {
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

func (d dice) session() *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{}}
	s.Spec.Prompt = oneOf(d, "do it", "$(PATH) \x01 {{.}}", strings.Repeat("long ", 5000))
	s.Spec.Interactive = d.often()
	if d.often() {
		s.Spec.Repos = []v1alpha1.SessionRepo{{URL: oneOf[v1alpha1.GitURL](d, "https://git.example/a/b.git", "git@git.example:a/b", "ssh://git@git.example/a")}}
	}
	if d.often() {
		s.Spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"X": "$(A)", oneOf(d, "Y", "Z", "_", "A"): "\n"}
	}
	if d.often() {
		s.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: oneOf(d, "token", "token", "token", "fix-inputs-0123456789")}}}}
	}
	if d.often() {
		s.Spec.SecretMounts = []v1alpha1.SecretMount{{SecretName: "token", MountPath: oneOf(d, "", "/secrets/a")}, {SecretName: "other"}}
	}
	if d.seldom() {
		s.Spec.SecretMounts = []v1alpha1.SecretMount{{SecretName: "token", MountPath: oneOf(d, "/secrets/a", "/secrets/..", "/proc")}, {SecretName: "other", MountPath: "/secrets/a"}}
	}
	if d.seldom() {
		s.Spec.Image = oneOf(d, "other:1", "evil:1")
	}
	if d.seldom() {
		s.Spec.Resources = new(d.resources())
	}
	if d.often() {
		s.Spec.Workspace = &v1alpha1.SessionWorkspace{Size: oneOf(d, nil, new(resource.MustParse("1Gi")), new(resource.MustParse("10Gi"))), Retain: d.seldom()}
	}
	s.Spec.Timeout = oneOf(d, nil, new(int32(0)), new(int32(time.Hour/time.Second)))
	return s
}
