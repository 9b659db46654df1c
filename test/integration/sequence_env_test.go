package integration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// Annotations that control Pods on the simulated nodes.
const (
	simDuration = "sim.localcluster.dev/duration"
	simStuck    = "sim.localcluster.dev/stuck"
)

// sequenceTest follows one SequentialJob. Its Pods run until the test ends them.
type sequenceTest struct {
	t  *testing.T
	sj *v1alpha1.SequentialJob
}

func createSequence(t *testing.T, sj *v1alpha1.SequentialJob) *sequenceTest {
	t.Helper()
	return createSequenceIn(t, namespace(t), sj)
}

func createSequenceIn(t *testing.T, ns string, sj *v1alpha1.SequentialJob) *sequenceTest {
	t.Helper()
	sj.ObjectMeta = metav1.ObjectMeta{Name: sj.Name, Namespace: ns}
	if sj.Spec.Template == nil {
		sj.Spec.Template = &v1alpha1.PodTemplate{}
	}
	if sj.Spec.Template.Annotations == nil {
		sj.Spec.Template.Annotations = map[string]string{}
	}
	if sj.Spec.Template.Annotations[simDuration] == "" {
		sj.Spec.Template.Annotations[simDuration] = "1h"
	}
	mustCreate(t, sj)
	return &sequenceTest{t: t, sj: sj}
}

func (s *sequenceTest) readSequence() *v1alpha1.SequentialJob {
	s.t.Helper()
	mustGet(s.t, client.ObjectKeyFromObject(s.sj), s.sj)
	return s.sj
}

func (s *sequenceTest) waitUntil(what string, condition func(sj *v1alpha1.SequentialJob) bool) {
	s.t.Helper()
	if err := poll.UntilNil(s.t.Context(), func() error {
		if !condition(s.readSequence()) {
			return fmt.Errorf("the status is\n%s", describe(s.sj))
		}
		return nil
	}); err != nil {
		s.t.Fatalf("waiting for %s: %v", what, err)
	}
}

func describe(sj *v1alpha1.SequentialJob) string {
	var b strings.Builder
	fmt.Fprintf(&b, "phase %s, %s\n", sj.Status.Phase, sequentialjob.FormatProgress(sj, false))
	for _, c := range sj.Status.Conditions {
		fmt.Fprintf(&b, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, step := range sj.Status.Steps {
		fmt.Fprintf(&b, "  %s %s %s %s %s\n", step.Name, step.Phase, step.JobName, step.Reason, step.Message)
	}
	return b.String()
}

func (s *sequenceTest) waitForPhase(phase v1alpha1.SequentialJobPhase) {
	s.t.Helper()
	s.waitUntil("phase "+string(phase), func(sj *v1alpha1.SequentialJob) bool { return sj.Status.Phase == phase })
}

// stepStatus returns the last read status of a step.
func (s *sequenceTest) stepStatus(name string) *v1alpha1.StepStatus {
	for i := range s.sj.Status.Steps {
		if s.sj.Status.Steps[i].Name == name {
			return &s.sj.Status.Steps[i]
		}
	}
	return &v1alpha1.StepStatus{}
}

// patchSequence changes the SequentialJob as a user would.
func (s *sequenceTest) patchSequence(change func(sj *v1alpha1.SequentialJob)) {
	s.t.Helper()
	before := s.readSequence().DeepCopy()
	change(s.sj)
	mustPatch(s.t, s.sj, client.MergeFrom(before))
}

// listJobs returns the Jobs of the SequentialJob, oldest first.
func (s *sequenceTest) listJobs() []batchv1.Job {
	s.t.Helper()
	var list batchv1.JobList
	require.NoError(s.t, cluster.List(s.t.Context(), &list, client.InNamespace(s.sj.Namespace)))
	owned := slices.DeleteFunc(list.Items, func(job batchv1.Job) bool { return !metav1.IsControlledBy(&job, s.sj) })
	slices.SortFunc(owned, func(a, b batchv1.Job) int {
		return cmp.Or(
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			decision.CompareTrueFirst(sequentialjob.IsTerminal(&a), sequentialjob.IsTerminal(&b)), // an attempt after an interrupted attempt
			cmp.Compare(a.Annotations[v1alpha1.AnnotationRun], b.Annotations[v1alpha1.AnnotationRun]),
		)
	})
	return owned
}

// waitForJob waits for a step's Job, that of the latest run.
func (s *sequenceTest) waitForJob(step string) *batchv1.Job {
	s.t.Helper()
	var found *batchv1.Job
	poll.Until(s.t, "the Job of step "+step, func() bool {
		for _, job := range s.listJobs() {
			if job.Labels[v1alpha1.LabelStep] == step && job.DeletionTimestamp.IsZero() {
				found = &job
			}
		}
		return found != nil
	})
	return found
}

func (s *sequenceTest) waitForPod(step string) *corev1.Pod {
	s.t.Helper()
	var pods corev1.PodList
	poll.Until(s.t, "a running Pod of step "+step, func() bool {
		job := s.waitForJob(step) // each time: an attempt is recorded before its Job exists
		ofJob := client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}
		require.NoError(s.t, cluster.List(s.t.Context(), &pods, client.InNamespace(job.Namespace), ofJob))
		pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
			return pod.Status.Phase != corev1.PodRunning || !pod.DeletionTimestamp.IsZero()
		})
		return len(pods.Items) > 0
	})
	return &pods.Items[0]
}

// endStep ends the Pod of a step, as a kubelet would report it.
func (s *sequenceTest) endStep(step string, exitCode int32, message string) {
	s.t.Helper()
	pod := s.waitForPod(step)
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	reason := "Completed"
	if exitCode != 0 {
		pod.Status.Phase, reason = corev1.PodFailed, "Error"
	}
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].Ready = false
		pod.Status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: exitCode, Reason: reason, Message: message, StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
		}}
	}
	require.NoError(s.t, cluster.Status().Patch(s.t.Context(), pod, client.MergeFrom(before)))
}

func (s *sequenceTest) succeedStep(step string) {
	s.t.Helper()
	s.endStep(step, 0, "")
	s.waitUntil("the end of step "+step, func(*v1alpha1.SequentialJob) bool { return s.stepStatus(step).Phase == v1alpha1.StepSucceeded })
}

// readCondition returns the last read status and reason of a condition.
func (s *sequenceTest) readCondition(kind string) (status metav1.ConditionStatus, reason string) {
	c := meta.FindStatusCondition(s.sj.Status.Conditions, kind)
	if c == nil {
		return "", ""
	}
	return c.Status, c.Reason
}

func (s *sequenceTest) wantCondition(kind string, wantStatus metav1.ConditionStatus, wantReason string) {
	s.t.Helper()
	if status, reason := s.readCondition(kind); status != wantStatus || reason != wantReason {
		s.t.Errorf("condition %s is %s/%s, want %s/%s", kind, status, reason, wantStatus, wantReason)
	}
}

func (s *sequenceTest) wantEvent(reason string) {
	s.t.Helper()
	poll.Until(s.t, "event "+reason, func() bool {
		var list eventsv1.EventList
		require.NoError(s.t, cluster.List(s.t.Context(), &list, client.InNamespace(s.sj.Namespace)))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.UID == s.sj.UID && e.Reason == reason
		})
	})
}

func (s *sequenceTest) waitUntilDeleted(object client.Object) {
	s.t.Helper()
	poll.Until(s.t, object.GetName()+" to be deleted", func() bool {
		return apierrors.IsNotFound(cluster.Get(s.t.Context(), client.ObjectKeyFromObject(object), object))
	})
}
