//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// busybox is an image that the node has.
const busybox = "docker.io/library/busybox:1.37"

// script makes a step run a shell script.
func script(text string) testbuilder.StepOption {
	return testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.Image = busybox
		c.Command = []string{"sh", "-ec", text}
	})
}

// held makes a step run until letGo is called.
func held() testbuilder.StepOption {
	return script("sleep 3600 || true")
}

// story follows one SequentialJob.
type story struct {
	t  *testing.T
	sj *v1alpha1.SequentialJob
}

// createSequence creates the SequentialJob in the watched namespace.
func createSequence(t *testing.T, sj *v1alpha1.SequentialJob) *story {
	t.Helper()
	return createSequenceIn(t, watched, sj)
}

func createSequenceIn(t *testing.T, ns string, sj *v1alpha1.SequentialJob) *story {
	t.Helper()
	s := &story{t: t, sj: prepare(ns, sj)}
	must(t, cluster.Create(t.Context(), s.sj))
	t.Cleanup(func() {
		if err := cluster.Delete(context.Background(), s.sj); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return s
}

// prepare completes a SequentialJob: its Pods satisfy the Pod Security Standard restricted.
func prepare(ns string, sj *v1alpha1.SequentialJob) *v1alpha1.SequentialJob {
	sj.ObjectMeta = metav1.ObjectMeta{GenerateName: sj.Name + "-", Namespace: ns}
	if sj.Spec.Template == nil {
		sj.Spec.Template = &corev1.PodTemplateSpec{}
	}
	pod := &sj.Spec.Template.Spec
	pod.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		RunAsUser:      new(int64(65532)),
		FSGroup:        new(int64(65532)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	pod.TerminationGracePeriodSeconds = new(int64(5))
	pod.Containers = []corev1.Container{{Name: "step", SecurityContext: restricted()}}
	return sj
}

// restricted returns the container settings that the Pod Security Standard restricted requires.
func restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// now reads the SequentialJob.
func (s *story) now() *v1alpha1.SequentialJob {
	s.t.Helper()
	must(s.t, cluster.Get(s.t.Context(), client.ObjectKeyFromObject(s.sj), s.sj))
	return s.sj
}

// until waits for the SequentialJob to satisfy the condition.
func (s *story) until(what string, condition func(sj *v1alpha1.SequentialJob) bool) {
	s.t.Helper()
	met := false
	defer func() {
		if !met {
			s.t.Log(describe(s.sj))
		}
	}()
	eventually(s.t, what, func() bool {
		met = condition(s.now())
		return met
	})
}

// untilPhase waits for the phase of the SequentialJob.
func (s *story) untilPhase(phase v1alpha1.SequentialJobPhase) {
	s.t.Helper()
	s.until(s.sj.Name+" to be "+string(phase), func(sj *v1alpha1.SequentialJob) bool { return sj.Status.Phase == phase })
}

// untilNoFinalizer waits until the SequentialJob has no finalizers.
func (s *story) untilNoFinalizer() {
	s.t.Helper()
	s.until(s.sj.Name+" to have no finalizers", func(sj *v1alpha1.SequentialJob) bool { return len(sj.Finalizers) == 0 })
}

// step returns the last read status of a step.
func (s *story) step(name string) *v1alpha1.StepStatus {
	for i := range s.sj.Status.Steps {
		if s.sj.Status.Steps[i].Name == name {
			return &s.sj.Status.Steps[i]
		}
	}
	return &v1alpha1.StepStatus{}
}

// patch changes the SequentialJob as a user would.
func (s *story) patch(change func(sj *v1alpha1.SequentialJob)) error {
	s.t.Helper()
	before := s.now().DeepCopy()
	change(s.sj)
	return cluster.Patch(s.t.Context(), s.sj, client.MergeFrom(before))
}

// delete deletes the SequentialJob as kubectl does.
func (s *story) delete() {
	s.t.Helper()
	must(s.t, cluster.Delete(s.t.Context(), s.sj, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// jobs returns the Jobs of the SequentialJob, in the order of their steps.
func (s *story) jobs() []batchv1.Job {
	s.t.Helper()
	var list batchv1.JobList
	must(s.t, cluster.List(s.t.Context(), &list, client.InNamespace(s.sj.Namespace)))
	owned := slices.DeleteFunc(list.Items, func(job batchv1.Job) bool { return !metav1.IsControlledBy(&job, s.sj) })
	index := func(job batchv1.Job) int {
		return slices.IndexFunc(s.sj.Spec.Containers, func(step v1alpha1.Step) bool {
			return step.Name == job.Labels[v1alpha1.LabelStep]
		})
	}
	slices.SortFunc(owned, func(a, b batchv1.Job) int { return cmp.Compare(index(a), index(b)) })
	return owned
}

// pods returns the Pods of a Job.
func (s *story) pods(job *batchv1.Job) []corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	must(s.t, cluster.List(s.t.Context(), &list, client.InNamespace(job.Namespace),
		client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}))
	return list.Items
}

// podOf waits until the Pod of a step runs, and returns it.
func (s *story) podOf(step string) *corev1.Pod {
	s.t.Helper()
	var found *corev1.Pod
	eventually(s.t, "a running Pod of step "+step, func() bool {
		for _, job := range s.jobs() {
			if job.Labels[v1alpha1.LabelStep] != step {
				continue
			}
			for _, pod := range s.pods(&job) {
				if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero() {
					found = &pod
				}
			}
		}
		return found != nil
	})
	return found
}

// letGo ends a step that was created with held.
func (s *story) letGo(step string) {
	s.t.Helper()
	signal(s.t, s.podOf(step), "sleep", "TERM")
}

// logs returns the log of a Pod's container.
func (s *story) logs(pod, container string) string {
	s.t.Helper()
	logs, err := clientset.CoreV1().Pods(s.sj.Namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(s.t.Context())
	must(s.t, err)
	return string(logs)
}

// wantEachStepOnce checks that each step ran in one Pod of one Job, after the previous step
// had ended.
func (s *story) wantEachStepOnce() {
	s.t.Helper()
	jobs := s.jobs()
	if len(jobs) != len(s.sj.Spec.Containers) {
		s.t.Errorf("%s has %d Jobs for %d steps", s.sj.Name, len(jobs), len(s.sj.Spec.Containers))
		return
	}
	var ended metav1.Time
	for i, job := range jobs {
		if job.Labels[v1alpha1.LabelStep] != s.sj.Spec.Containers[i].Name {
			s.t.Errorf("%s: Job %d belongs to step %s", s.sj.Name, i, job.Labels[v1alpha1.LabelStep])
		}
		pods := s.pods(&job)
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

func describe(sj *v1alpha1.SequentialJob) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: phase %s, %s, finalizers %v\n", sj.Name, sj.Status.Phase, sj.Status.Progress.Display, sj.Finalizers)
	for _, c := range sj.Status.Conditions {
		fmt.Fprintf(&b, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, step := range sj.Status.Steps {
		fmt.Fprintf(&b, "  %s %s %s %s %s\n", step.Name, step.Phase, step.JobName, step.Reason, step.Message)
	}
	return b.String()
}
