//go:build e2e

package e2e

import (
	"cmp"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// busyboxImage is an image that the node has.
const busyboxImage = "docker.io/library/busybox:1.37"

func shellScript(text string) testbuilder.StepOption {
	return testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.Image = busyboxImage
		c.Command = []string{"sh", "-ec", text}
	})
}

// untilReleased makes a step run until releaseStep is called.
func untilReleased() testbuilder.StepOption {
	return shellScript("sleep 3600 || true")
}

// sequenceTest follows one SequentialJob.
type sequenceTest struct {
	t  *testing.T
	sj *v1alpha1.SequentialJob
}

// createSequence creates the SequentialJob in the watched namespace.
func createSequence(t *testing.T, sj *v1alpha1.SequentialJob) *sequenceTest {
	t.Helper()
	return createSequenceIn(t, watchedNamespace, sj)
}

func createSequenceIn(t *testing.T, ns string, sj *v1alpha1.SequentialJob) *sequenceTest {
	t.Helper()
	s := &sequenceTest{t: t, sj: prepareSequence(ns, sj)}
	createUntilEnd(t, s.sj)
	return s
}

// prepareSequence completes a SequentialJob: its Pods satisfy the Pod Security Standard restricted.
func prepareSequence(ns string, sj *v1alpha1.SequentialJob) *v1alpha1.SequentialJob {
	sj.ObjectMeta = metav1.ObjectMeta{GenerateName: sj.Name + "-", Namespace: ns}
	if sj.Spec.Template == nil {
		sj.Spec.Template = &v1alpha1.PodTemplate{}
	}
	pod := &sj.Spec.Template.Spec
	pod.SecurityContext = restrictedPodSecurityContext()
	pod.TerminationGracePeriodSeconds = new(int64(5))
	pod.Containers = []corev1.Container{{Name: "step", SecurityContext: restrictedSecurityContext()}}
	return sj
}

// restrictedPodSecurityContext returns the Pod settings that the Pod Security Standard restricted requires.
func restrictedPodSecurityContext() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), FSGroup: new(int64(65532)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// restrictedSecurityContext returns the container settings that the Pod Security Standard restricted requires.
func restrictedSecurityContext() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func (s *sequenceTest) readSequence() *v1alpha1.SequentialJob {
	s.t.Helper()
	require.NoError(s.t, cluster.Get(s.t.Context(), client.ObjectKeyFromObject(s.sj), s.sj))
	return s.sj
}

func (s *sequenceTest) waitUntil(what string, condition func(sj *v1alpha1.SequentialJob) bool) {
	s.t.Helper()
	poll.Until(s.t, what, func() bool { return condition(s.readSequence()) })
}

func (s *sequenceTest) waitForPhase(phase v1alpha1.SequentialJobPhase) {
	s.t.Helper()
	s.waitUntil(s.sj.Name+" to be "+string(phase), func(sj *v1alpha1.SequentialJob) bool { return sj.Status.Phase == phase })
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

func (s *sequenceTest) patchSequence(change func(sj *v1alpha1.SequentialJob)) error {
	s.t.Helper()
	before := s.readSequence().DeepCopy()
	change(s.sj)
	return cluster.Patch(s.t.Context(), s.sj, client.MergeFrom(before))
}

// deleteSequence deletes the SequentialJob as kubectl does.
func (s *sequenceTest) deleteSequence() {
	s.t.Helper()
	require.NoError(s.t, cluster.Delete(s.t.Context(), s.sj, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// listJobs returns the Jobs of the SequentialJob, in the order of their steps.
func (s *sequenceTest) listJobs() []batchv1.Job {
	s.t.Helper()
	var list batchv1.JobList
	require.NoError(s.t, cluster.List(s.t.Context(), &list, client.InNamespace(s.sj.Namespace)))
	owned := slices.DeleteFunc(list.Items, func(job batchv1.Job) bool { return !metav1.IsControlledBy(&job, s.sj) })
	index := func(job batchv1.Job) int {
		return slices.IndexFunc(s.sj.Spec.Containers, func(step v1alpha1.Step) bool {
			return step.Name == job.Labels[v1alpha1.LabelStep]
		})
	}
	slices.SortFunc(owned, func(a, b batchv1.Job) int { return cmp.Compare(index(a), index(b)) })
	return owned
}

func (s *sequenceTest) listPods(job *batchv1.Job) []corev1.Pod {
	s.t.Helper()
	return podsWith(s.t, job.Namespace, map[string]string{batchv1.ControllerUidLabel: string(job.UID)})
}

func (s *sequenceTest) waitForRunningPod(step string) *corev1.Pod {
	s.t.Helper()
	var found *corev1.Pod
	poll.Until(s.t, "a running Pod of step "+step, func() bool {
		for _, job := range s.listJobs() {
			if job.Labels[v1alpha1.LabelStep] != step {
				continue
			}
			for _, pod := range s.listPods(&job) {
				if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero() {
					found = &pod
				}
			}
		}
		return found != nil
	})
	return found
}

func (s *sequenceTest) releaseStep(step string) {
	s.t.Helper()
	sendSignal(s.t, s.waitForRunningPod(step), "sleep", "TERM")
}

func (s *sequenceTest) readLogs(pod, container string) string {
	s.t.Helper()
	return readLog(s.t, s.sj.Namespace, pod, container)
}

// wantEachStepOnce checks that each step ran in one Pod of one Job, after the previous step
// had ended.
func (s *sequenceTest) wantEachStepOnce() {
	s.t.Helper()
	jobs := s.listJobs()
	if len(jobs) != len(s.sj.Spec.Containers) {
		s.t.Errorf("%s has %d Jobs for %d steps", s.sj.Name, len(jobs), len(s.sj.Spec.Containers))
		return
	}
	var ended metav1.Time
	for i, job := range jobs {
		if job.Labels[v1alpha1.LabelStep] != s.sj.Spec.Containers[i].Name {
			s.t.Errorf("%s: Job %d belongs to step %s", s.sj.Name, i, job.Labels[v1alpha1.LabelStep])
		}
		pods := s.listPods(&job)
		if len(pods) != 1 || job.Status.Succeeded != 1 || job.Status.Failed != 0 {
			s.t.Errorf("%s: Job %s has %d Pods, %d succeeded, %d failed", s.sj.Name, job.Name, len(pods), job.Status.Succeeded, job.Status.Failed)
			return
		}
		ran := pods[0].Status.ContainerStatuses[0].State.Terminated
		if ran.StartedAt.Before(&ended) {
			s.t.Errorf("%s: step %d started at %v, before the previous step ended at %v", s.sj.Name, i, ran.StartedAt, ended)
		}
		ended = ran.FinishedAt
	}
}
