package integration

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// reportTime is the time within which a step's message names what keeps its Pod from running.
const reportTime = 5 * time.Second

func TestMessageSaysWithinSecondsWhyAStepDoesNotRun(t *testing.T) {
	t.Parallel()
	withTemplate := func(change func(*corev1.PodTemplateSpec)) func(*testing.T, string, *v1alpha1.SequentialJob) {
		return func(_ *testing.T, _ string, sj *v1alpha1.SequentialJob) {
			sj.Spec.Template = &v1alpha1.PodTemplate{PodTemplateSpec: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}}
			change(&sj.Spec.Template.PodTemplateSpec)
		}
	}
	tests := map[string]struct {
		labels     map[string]string
		prepare    func(t *testing.T, ns string, sj *v1alpha1.SequentialJob)
		wantReason string
		wantText   string
		// wantRefused is true if the dry run shows the cause, so that no Job is created.
		wantRefused bool
	}{
		"image": {
			prepare: withTemplate(func(template *corev1.PodTemplateSpec) {
				template.Annotations[simStuck] = "true"
			}),
			wantReason: v1alpha1.ReasonImagePull, wantText: "container a: ImagePullBackOff",
		},
		"nodes": {
			prepare: withTemplate(func(template *corev1.PodTemplateSpec) {
				template.Spec.NodeSelector = map[string]string{"none": "such"}
			}),
			wantReason: corev1.PodReasonUnschedulable, wantText: "node",
		},
		"gate": {
			prepare: withTemplate(func(template *corev1.PodTemplateSpec) {
				template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
			}),
			wantReason: corev1.PodReasonSchedulingGated, wantText: "SchedulingGated",
		},
		"claim": {
			prepare: withTemplate(func(template *corev1.PodTemplateSpec) {
				template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "missing"},
				}}}
			}),
			wantReason: corev1.PodReasonUnschedulable, wantText: `"missing" not found`,
		},
		"account": {
			prepare: withTemplate(func(template *corev1.PodTemplateSpec) {
				template.Spec.ServiceAccountName = "missing"
			}),
			wantRefused: true, wantReason: v1alpha1.ReasonPodNotCreated, wantText: `serviceaccount "missing" not found`,
		},
		"security": {
			labels:      map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
			wantRefused: true, wantReason: v1alpha1.ReasonPodNotCreated, wantText: "violates PodSecurity",
		},
		"quota": {
			prepare: func(t *testing.T, ns string, _ *v1alpha1.SequentialJob) {
				quota := newQuota(ns, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")})
				mustCreate(t, quota)
				poll.Until(t, "the quota to take effect", func() bool {
					return cluster.Get(t.Context(), client.ObjectKeyFromObject(quota), quota) == nil && len(quota.Status.Hard) > 0
				})
			},
			wantRefused: true, wantReason: v1alpha1.ReasonPodNotCreated, wantText: "exceeded quota",
		},
		"limits": {
			prepare: func(t *testing.T, ns string, sj *v1alpha1.SequentialJob) {
				mustCreate(t, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: ns}, Spec: corev1.LimitRangeSpec{
					Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}},
				}})
				sj.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
				sj.Spec.Containers[0].Resources.Limits = sj.Spec.Containers[0].Resources.Requests
			},
			wantRefused: true, wantReason: v1alpha1.ReasonPodNotCreated, wantText: "maximum cpu usage per Container is 100m",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t, test.labels)
			sj := testbuilder.SequentialJob(name, "").Step("a").Obj()
			if test.prepare != nil {
				test.prepare(t, ns, sj)
			}
			s := createSequenceIn(t, ns, sj)
			since, wantPhase := s.sj.CreationTimestamp, v1alpha1.StepPending
			if !test.wantRefused {
				since, wantPhase = s.waitForJob("a").CreationTimestamp, v1alpha1.StepStarting
			}
			s.waitUntil("the reason", func(sj *v1alpha1.SequentialJob) bool {
				return len(sj.Status.Steps) > 0 && s.stepStatus("a").Reason == test.wantReason
			})
			assertWithin(t, "the reason is reported", reportTime+time.Second, since.Time) // a second of rounding
			step := s.stepStatus("a")
			if step.Phase != wantPhase || !strings.Contains(step.Message, test.wantText) {
				t.Errorf("phase %s and message %q, want %s and a message with %q", step.Phase, step.Message, wantPhase, test.wantText)
			}
			if jobs := s.listJobs(); test.wantRefused && len(jobs) > 0 {
				t.Errorf("the Job %s was created", jobs[0].Name)
			}
			s.wantBlocked(test.wantReason)
			if !test.wantRefused {
				s.correct()
			}
		})
	}
}

// correct removes what keeps step a from starting, and changes its image, by a patch of the spec.
func (s *sequenceTest) correct() {
	s.t.Helper()
	const corrected = "registry.example/a:2"
	first := s.waitForJob("a")
	s.patchSequence(func(sj *v1alpha1.SequentialJob) {
		delete(sj.Spec.Template.Annotations, simStuck)
		sj.Spec.Template.Spec, sj.Spec.Containers[0].Image = corev1.PodSpec{}, corrected
	})
	s.waitUntil("the next attempt", func(*v1alpha1.SequentialJob) bool { return s.stepStatus("a").Attempt == 2 })
	s.wantEvent(v1alpha1.EventJobReplaced)
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	if job := s.waitForJob("a"); job.UID == first.UID || job.Spec.Template.Spec.Containers[0].Image != corrected {
		s.t.Errorf("a ran %s in Job %s", job.Spec.Template.Spec.Containers[0].Image, job.Name)
	}
}

// wantBlocked checks that the condition, the reason of the status and an event say what blocks the run.
func (s *sequenceTest) wantBlocked(reason string) {
	s.t.Helper()
	s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, reason)
	s.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason)
	if s.sj.Status.Reason != reason {
		s.t.Errorf("the status has the reason %q, want %q", s.sj.Status.Reason, reason)
	}
	if message := meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionBlocked).Message; !strings.Contains(message, "; ") {
		s.t.Errorf("message %q does not say what to do", message)
	}
	s.wantEvent(v1alpha1.EventBlocked)
}
