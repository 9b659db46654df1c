package sequentialjob

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// A stop is how a Pod is requested to stop, and an end is when its program, which handles SIGTERM and exits with 0, ends.
type (
	stop string
	end  time.Duration
	view string
)

const (
	notStopped stop = "runs undisturbed"
	evicted    stop = "is evicted"
	deleted    stop = "is deleted"
	preempted  stop = "is preempted"

	longBefore = end(-time.Minute)
	justBefore = end(-time.Millisecond)
	justAfter  = end(time.Millisecond)
	longAfter  = end(20 * time.Second)

	seesAll     view = "each version of the Pod"
	seesLast    view = "only the last version of the Pod"
	seesRunning view = "only a running Pod"
	seesNothing view = "no Pod"
)

// outcomeOf is the rule: success is what was seen to have ended by itself. If nothing between the request to stop and the end
// was seen, their times decide, in seconds.
func outcomeOf(s stop, e end, v view) string {
	switch {
	case v == seesRunning || v == seesNothing:
		return "unknown"
	case s == notStopped || e == longBefore || e == justBefore && v == seesAll:
		return "succeeded"
	}
	return "interrupted"
}

// versionsOf returns the versions of a Pod whose stop was requested at noon.
func versionsOf(s stop, e end) []corev1.Pod {
	noon := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	pod := testbuilder.Pod("build").Running().Obj()
	pod.UID = "pod"
	tell := func(pod corev1.Pod) corev1.Pod {
		requested := *pod.DeepCopy()
		if s == evicted || s == preempted {
			requested.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: noon}}
		}
		if s == evicted || s == deleted {
			requested.DeletionTimestamp, requested.DeletionGracePeriodSeconds = &metav1.Time{Time: noon.Add(30 * time.Second)}, new(int64(30))
		}
		return requested
	}
	finish := func(pod corev1.Pod) corev1.Pod {
		ended := *pod.DeepCopy()
		ended.Status.Phase = corev1.PodSucceeded
		// The API has whole seconds.
		at := metav1.NewTime(noon.Add(500 * time.Millisecond).Add(time.Duration(e)).Truncate(time.Second))
		ended.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at}}
		return ended
	}
	switch {
	case s == notStopped:
		return []corev1.Pod{pod, finish(pod)}
	case e < 0:
		return []corev1.Pod{pod, finish(pod), tell(finish(pod))}
	}
	return []corev1.Pod{pod, tell(pod), finish(tell(pod))}
}

func TestACompleteJobProvesOnlyWhatItsPodsShow(t *testing.T) {
	for _, s := range []stop{notStopped, evicted, deleted, preempted} {
		for _, e := range []end{longBefore, justBefore, justAfter, longAfter} {
			for _, v := range []view{seesAll, seesLast, seesRunning, seesNothing} {
				for _, onLost := range []v1alpha1.LostJobPolicy{v1alpha1.LostJobFail, v1alpha1.LostJobRerun} {
					want := outcomeOf(s, e, v)
					title := fmt.Sprintf("a Pod that %s and ends %v after that, of which the operator sees %s, with onLostJob %s: %s", s, time.Duration(e), v, onLost, want)
					t.Run(title, func(t *testing.T) { checkProof(t, versionsOf(s, e), v, onLost, want) })
				}
			}
		}
	}
}

func checkProof(t *testing.T, versions []corev1.Pod, v view, onLost v1alpha1.LostJobPolicy, want string) {
	builder := testbuilder.SequentialJob("a", "ns").Step("build").Step("drop")
	if onLost == v1alpha1.LostJobRerun {
		builder.RerunLostJobs()
	}
	s := startRun(t, builder)
	job := s.newestJob("build")
	s.pods[job.UID] = nil // deleted
	var evidence Evidence
	switch v {
	case seesAll:
		for i := range versions {
			evidence.Observe(&versions[i])
		}
	case seesLast:
		evidence.Observe(&versions[len(versions)-1])
	case seesRunning:
		evidence.Observe(&versions[0])
	}
	s.evidence[job.UID] = evidence
	s.succeedStep("build")
	switch want {
	case "succeeded":
		s.wantSteps("build: Succeeded", "drop: Starting")
		return
	case "interrupted":
		s.wantSteps("build: Starting, Interrupted", "drop: Pending")
		s.wantEvents(v1alpha1.EventJobStarted, v1alpha1.EventStepInterrupted, v1alpha1.EventJobStarted)
	case "unknown":
		s.wantSteps("build: Starting", "drop: Pending") // the cache may be late
		s.reconcileAfter(maxPodLag)
		if onLost == v1alpha1.LostJobFail {
			s.wantSteps("build: Failed, OutcomeUnknown", "drop: Skipped, PreviousStepFailed")
			return
		}
		s.wantSteps("build: Starting, OutcomeUnknown", "drop: Pending")
		s.wantEvents(v1alpha1.EventJobStarted, v1alpha1.EventJobLost, v1alpha1.EventJobStarted)
	}
	s.wantCreated("build", "build")
	s.succeedStep("build") // the second attempt
	s.wantSteps("build: Succeeded", "drop: Starting")
}

func TestALateViewOfThePodsEndsTheDoubt(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	job := s.newestJob("build")
	s.pods[job.UID] = nil
	s.succeedStep("build")
	s.wantSteps("build: Starting", "test: Pending")
	var evidence Evidence
	versions := versionsOf(deleted, justBefore)
	for i := range versions {
		evidence.Observe(&versions[i])
	}
	s.evidence[job.UID] = evidence
	s.reconcileAfter(time.Second)
	s.wantSteps("build: Succeeded", "test: Starting")
}

func TestOneInterruptedPodOfManyRepeatsTheStep(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	job := s.newestJob("build")
	var evidence Evidence
	for i := range 5 {
		pod := testbuilder.Pod("build").Exited(0, "").Obj()
		pod.UID = types.UID(fmt.Sprint(i))
		if i == 3 {
			pod = versionsOf(evicted, longAfter)[2]
		}
		evidence.Observe(&pod)
	}
	s.evidence[job.UID] = evidence
	s.succeedStep("build")
	s.wantSteps("build: Starting, Interrupted", "test: Pending")
}

// Kueue's and other managers' Jobs may have their Pods in another cluster.
func TestTheJobOfAnotherControllerIsBelievedWithoutPods(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	job := s.newestJob("build")
	job.Spec.ManagedBy, s.pods[job.UID] = new("kueue.x-k8s.io/multikueue"), nil
	s.succeedStep("build")
	s.wantSteps("build: Succeeded", "test: Starting")
}

func TestASuspendedStepThatExitsWithZeroRunsAgainWhenItIsResumed(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	s.reconcileAfter(time.Minute)
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Suspend, spec.SuspendPolicy = true, v1alpha1.SuspendImmediate
	})
	s.reconcile()
	job := s.newestJob("build")
	var evidence Evidence
	versions := versionsOf(deleted, longAfter)
	for i := range versions {
		evidence.Observe(&versions[i])
	}
	s.evidence[job.UID] = evidence
	s.succeedStep("build")
	s.wantSteps("build: Interrupted, Interrupted", "test: Pending")
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = false })
	s.reconcile()
	s.wantSteps("build: Starting, Interrupted", "test: Pending")
	s.wantCreated("build", "build")
}

func TestAnOutputIsThatOfThePodThatEndedByItself(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build", testbuilder.RecordOutput()).Step("test"))
	job := s.newestJob("build")
	pod := testbuilder.Pod("build").Exited(0, "v1").Obj()
	var evidence Evidence
	evidence.Observe(&pod)
	s.evidence[job.UID], s.pods[job.UID] = evidence, nil // deleted by now, as with ttlSecondsAfterFinished 0
	s.succeedStep("build")
	if got := s.stepStatus("build"); got.Phase != v1alpha1.StepSucceeded || got.Output != "v1" {
		t.Errorf("phase %s with output %q, want Succeeded with v1", got.Phase, got.Output)
	}
}

func TestOnlyTheJobOfTheActiveStepNeedsEvidence(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	build := s.newestJob("build")
	if NeedsEvidence(s.sj, build) {
		t.Error("a Job that runs needs evidence")
	}
	testbuilder.Job(build).Complete(s.now)
	if !NeedsEvidence(s.sj, build) {
		t.Error("the Job of the active step needs no evidence")
	}
	s.reconcile()
	test := testbuilder.Job(s.newestJob("test")).Condition(batchv1.JobComplete, "", "", s.now).Obj()
	if NeedsEvidence(s.sj, build) || !NeedsEvidence(s.sj, test) {
		t.Error("want evidence of the second Job only")
	}
}
