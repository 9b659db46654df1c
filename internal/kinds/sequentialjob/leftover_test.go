package sequentialjob

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// An ender ends a Pod in which only the container of a mesh still runs.
type ender string

const (
	nobody         ender = "nobody"
	option         ender = "endWithStep"
	deadlineOfStep ender = "the deadline of the step"
	deadlineOfRun  ender = "the deadline of the run"
)

// outcomeWithLeftover is the rule: the outcome of a step with one Pod is that of its own container, whatever ends its Pod. Of a
// step with several Pods, others may not have run.
func outcomeWithLeftover(by ender, exitCode, pods int32, policy corev1.RestartPolicy) []string {
	succeeded, failed := "build: Succeeded", "build: Failed, BackoffLimitExceeded"
	isRestarted := exitCode != 0 && policy == corev1.RestartPolicyOnFailure
	switch {
	case by == deadlineOfStep && exitCode == 0 && pods == 1:
		return []string{succeeded, "test: Starting"}
	case by == deadlineOfStep:
		return []string{"build: Failed, StepDeadlineExceeded", "test: Skipped, PreviousStepFailed"}
	case by == deadlineOfRun && (pods > 1 || isRestarted):
		return []string{"build: Failed, DeadlineExceeded", "test: Skipped, PreviousStepFailed"}
	case isRestarted:
		return []string{"build: Running", "test: Pending"}
	case by == nobody || by == option && pods > 1:
		return []string{"build: Running, ContainerStillRuns", "test: Pending"}
	case exitCode != 0:
		return []string{failed, "test: Skipped, PreviousStepFailed"}
	case by == deadlineOfRun:
		return []string{succeeded, "test: Skipped, DeadlineExceeded"}
	default:
		return []string{succeeded, "test: Starting"}
	}
}

func TestTheOutcomeOfAStepIsThatOfItsOwnContainer(t *testing.T) {
	for _, by := range []ender{nobody, option, deadlineOfStep, deadlineOfRun} {
		for _, exitCode := range []int32{0, 3} {
			for _, pods := range []int32{1, 2} {
				for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
					title := fmt.Sprintf("the container of a Pod of %d with restartPolicy %s exits with %d, and %s ends the rest", pods, policy, exitCode, by)
					t.Run(title, func(t *testing.T) { checkLeftover(t, by, exitCode, pods, policy) })
				}
			}
		}
	}
}

func checkLeftover(t *testing.T, by ender, exitCode, pods int32, policy corev1.RestartPolicy) {
	builder := sequence().Template(corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: policy}}).ActiveDeadline(60).
		Step("build", testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.Outputs, o.Completions = pods == 1, &pods })).Step("test")
	s := startRun(t, builder)
	job := s.newestJob("build")
	s.now = s.now.Add(30 * time.Second)
	pod := leftoverPod(job, exitCode, s.now)
	s.unfinishedPods = []*corev1.Pod{&pod}
	s.pods[job.UID] = nil                                     // deleted with the Job
	s.pass(wait(0), steps("build: Running", "test: Pending")) // most containers of others end soon
	if by == option {
		s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Template.EndWithStep = true })
	}
	s.reconcileAfter(leftoverDelay)
	want := outcomeWithLeftover(by, exitCode, pods, policy)
	if by == nobody && want[0] == "build: Running, ContainerStillRuns" {
		message := fmt.Sprintf("container build exited with %d; container mesh-proxy still runs", exitCode)
		s.pass(hasCondition(v1alpha1.ConditionBlocked,
			`True ContainerStillRuns: step "build": `+message+"; end it, make it a native sidecar, or set spec.template.endWithStep"))
		if got := s.sj.Status; got.Phase != v1alpha1.PhaseRunning || got.Reason != v1alpha1.ReasonContainerStillRuns || got.Steps[0].Message != message {
			t.Errorf("phase %s, reason %s, message %q", got.Phase, got.Reason, got.Steps[0].Message)
		}
	}
	s.restartOperator()
	s.evidence.change(job.UID, func(e *Evidence) { e.Observe(&pod) })
	switch by {
	case deadlineOfStep:
		testbuilder.Job(job).Failed(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline", s.now)
	case deadlineOfRun:
		s.reconcileAfter(time.Minute)
	}
	if job.DeletionTimestamp != nil {
		s.reconcile()
		require.True(t, s.stepStatus("build").Phase == v1alpha1.StepStopping && s.stepStatus("test").Phase == v1alpha1.StepPending,
			"steps %+v; nothing else starts before the Pod has stopped", s.sj.Status.Steps)
		s.unfinishedPods = nil
	}
	s.pass(removeJobs, steps(want...))
	step := s.stepStatus("build")
	require.True(t, step.Phase != v1alpha1.StepSucceeded || step.Output == "v1", "output %q, want v1", step.Output)
	if step.Reason == batchv1.JobReasonBackoffLimitExceeded && (*step.ExitCode != exitCode || step.Message != "container build exited with code 3: v1") {
		t.Errorf("exit code %d, message %q", *step.ExitCode, step.Message)
	}
}

// leftoverPod returns a Pod of a Job whose container has ended and to which a mesh added another container.
func leftoverPod(job *batchv1.Job, exitCode int32, at time.Time) corev1.Pod {
	pod := testbuilder.Pod("build").Created(at).Exited(exitCode, "v1").Obj()
	pod.UID, pod.OwnerReferences = "pod", []metav1.OwnerReference{{UID: job.UID, Controller: new(true)}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: "mesh-proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at.Add(-time.Minute))}},
	})
	return pod
}

func TestAnotherPodClearsTheReportOfAContainerThatStillRuns(t *testing.T) {
	s := startRun(t, sequence("build"))
	pod := leftoverPod(s.newestJob("build"), 0, s.now)
	s.unfinishedPods = []*corev1.Pod{&pod}
	s.pass(wait(leftoverDelay), steps("build: Running, ContainerStillRuns"))
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.now)}}
	s.pass(wait(startReportDelay), steps("build: Running"), hasCondition(v1alpha1.ConditionBlocked, "False NotBlocked: "))
}
