package agenticsession

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// newQueuedScenario returns a session with a Job that Kueue has just suspended at its creation.
func newQueuedScenario(t *testing.T, change ...func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	t.Helper()
	s := newScenario(t, change...)
	s.Runner.Spec.ActivityLease = true
	s.Runner.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{queueLabel: "team-a"}}
	s.startAttempt()
	s.Pods = nil
	job := s.newestJob()
	job.Spec.Suspend, job.Status.StartTime = new(true), nil
	s.setSuspended(corev1.ConditionTrue)
	return s
}

// newAdmittedScenario returns a session whose runner just started after its queue resumed its Job.
func newAdmittedScenario(t *testing.T, change ...func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	t.Helper()
	s := newQueuedScenario(t, change...)
	s.decideAndRecord()
	s.admit().startRunner().wantPhase(v1alpha1.SessionRunning, "")
	return s
}

func (s *scenario) setSuspended(status corev1.ConditionStatus) {
	s.newestJob().Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: status, LastTransitionTime: metav1.NewTime(s.Now)}}
}

// admit resumes the newest Job, as a queue does, and starts a Pod.
func (s *scenario) admit() *scenario {
	s.t.Helper()
	job := s.newestJob().DeepCopy()
	s.Jobs[len(s.Jobs)-1] = job
	job.Spec.Suspend, job.Status.StartTime, job.Status.Active = new(false), new(metav1.NewTime(s.Now)), 1
	s.setSuspended(corev1.ConditionFalse)
	s.createPod(job)
	return s
}

// suspendJob suspends the newest Job, as a queue does that evicts it. Its Pod is being terminated.
func (s *scenario) suspendJob() *scenario {
	s.t.Helper()
	job := s.newestJob().DeepCopy()
	s.Jobs[len(s.Jobs)-1] = job
	job.Spec.Suspend, job.Status.StartTime = new(true), nil
	job.Status.Active, job.Status.Terminating = 0, new(int32(1))
	s.setSuspended(corev1.ConditionTrue)
	s.deletePod()
	return s
}

// stopSuspendedPod ends the runner of a suspended Job. The operator remembers its Pod.
func (s *scenario) stopSuspendedPod() *scenario {
	s.terminateRunner(143, "")
	s.newestPod().Status.Phase = corev1.PodFailed
	s.newestJob().Status.Terminating = new(int32(0))
	return s
}

func TestJobHasTheMetadataOfItsSessionRunner(t *testing.T) {
	s := newScenario(t)
	s.Runner.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{queueLabel: "team-a"}, Annotations: map[string]string{"cost": "7"}}
	job := s.decideAndRecord().CreateJob
	require.True(t, job.Labels[queueLabel] == "team-a" && job.Labels[LabelSessionUID] == "session", "labels %v", job.Labels)
	require.True(t, job.Annotations["cost"] == "7" && job.Annotations[AnnotationRun] == "1", "annotations %v", job.Annotations)
	_, found := job.Spec.Template.Labels[queueLabel]
	require.True(t, !found, "the Pod has the label of the Job")
}

func TestSessionWhoseJobIsQueuedIsPending(t *testing.T) {
	s := newQueuedScenario(t)
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	s.wantCondition(v1alpha1.ConditionRunnerStarted, metav1.ConditionFalse, v1alpha1.ReasonPodNotCreated)
	since := s.Session.Status.QueuedSince
	require.True(t, since != nil && since.Time.Equal(testStartTime), "queued since %v, want %s", since, testStartTime)
	s.advanceClock(time.Hour).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	got := s.Session.Status.QueuedSince
	require.True(t, got.Equal(since), "queued since %v, want %v", got, since)
	s.admit().wantPhase(v1alpha1.SessionCreating, "")
	s.startRunner().wantPhase(v1alpha1.SessionRunning, "")
	require.True(t, s.Session.Status.QueuedSince == nil, "it is still queued")
	s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
}

func TestSessionIsRunningUntilThePodOfItsSuspendedJobHasStopped(t *testing.T) {
	s := newAdmittedScenario(t)
	s.suspendJob().wantPhase(v1alpha1.SessionRunning, "")
	s.stopSuspendedPod().wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	s.wantEvent(v1alpha1.EventJobSuspended)
}

func TestPreemptedSessionContinuesItsAttempt(t *testing.T) {
	s := newQueuedScenario(t, withRetryLimit(1))
	s.decideAndRecord()
	for range 3 {
		s.advanceClock(time.Minute).admit().wantPhase(v1alpha1.SessionCreating, "") // also while it remembers the Pod before
		s.startRunner().wantPhase(v1alpha1.SessionRunning, "")
		s.advanceClock(time.Minute).suspendJob().stopSuspendedPod().wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	}
	status := &s.Session.Status
	require.True(t, status.Attempt.Attempt == 1 && status.Retries+status.Disruptions == 0 && len(status.Attempts) == 0, "%+v", status)
	require.Equal(t, 1, len(s.Jobs))
	s.admit().startRunner().decideAndRecord()
	s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
}

func TestTimeInAQueueDoesNotCountTowardsTheTimeout(t *testing.T) {
	s := newQueuedScenario(t, withTimeout(100))
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	s.advanceClock(30 * time.Hour).admit().startRunner().decideAndRecord()
	s.advanceClock(40 * time.Second).suspendJob().stopSuspendedPod().decideAndRecord()
	s.wantActiveSeconds(40)
	s.advanceClock(30 * time.Hour).decideAndRecord()
	s.admit().advanceClock(5 * time.Second).startRunner().decideAndRecord()
	s.wantDeadline(65)
	s.advanceClock(20*time.Second).exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
	s.wantActiveSeconds(60)
}

func TestTheStartupTimeoutCountsAgainAfterAStop(t *testing.T) {
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.StartupTimeout = seconds(60) })
	s.startAttempt().startRunner().decideAndRecord()
	s.updateSpec(suspend).decideAndRecord()
	s.exitRunner(143, "").removeJobAndPod().wantPhase(v1alpha1.SessionStopped, "")
	s.Runner = nil
	for range 3 {
		s.updateSpec(resume).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRunnerNotFound)
		s.advanceClock(40*time.Second).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonRunnerNotFound)
		s.updateSpec(suspend).wantPhase(v1alpha1.SessionStopped, "")
		s.advanceClock(40 * time.Second)
	}
}

// The operator may not observe that a Job was suspended and resumed. What it did not observe may have been running.
func TestTimeBeforeAnUnobservedSuspensionCountsUntilTheJobWasResumed(t *testing.T) {
	s := newAdmittedScenario(t, withTimeout(100))
	s.Pods = nil
	s.advanceClock(30*time.Second).admit().advanceClock(10*time.Second).wantPhase(v1alpha1.SessionCreating, "")
	s.wantActiveSeconds(30)
	s.startRunner().decideAndRecord()
	s.advanceClock(5*time.Second).exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
	s.wantActiveSeconds(35)
}

// The operator may observe a Pod that was deleted, or remember it, when its Job is resumed. All may happen in one second.
func TestPodBeforeASuspensionIsNotTakenForTheNextOne(t *testing.T) {
	for title, forget := range map[string]func(s *scenario){
		"a Pod that is being deleted": func(*scenario) {},
		"a Pod that was deleted":      func(s *scenario) { s.DeletedPod = s.newestPod().UID },
		"a Pod that was deleted without a grace period": func(s *scenario) {
			s.DeletedPod = s.newestPod().UID
			s.newestPod().DeletionTimestamp, s.newestPod().DeletionGracePeriodSeconds = nil, nil
		},
	} {
		for _, took := range []time.Duration{0, time.Second, time.Minute} {
			t.Run(title+" "+took.String()+" before", func(t *testing.T) {
				s := newAdmittedScenario(t)
				s.suspendJob().stopSuspendedPod().wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
				forget(s)
				s.advanceClock(took)
				s.newestJob().Spec.Suspend = new(false) // the Job controller has not observed that yet
				s.wantPhase(v1alpha1.SessionCreating, "")
				s.newestJob().Status.StartTime = new(metav1.NewTime(s.Now))
				s.setSuspended(corev1.ConditionFalse)
				s.wantPhase(v1alpha1.SessionCreating, "")
				s.admit().wantPhase(v1alpha1.SessionCreating, "")
			})
		}
	}
}

// The Job controller leaves the start time of a suspended Job as it was, until the Job is resumed.
func TestOldStartTimeOfASuspendedJobDoesNotCount(t *testing.T) {
	s := newRunningScenario(t, withTimeout(100))
	old := s.newestJob().Status.StartTime
	s.advanceClock(10 * time.Second).suspendJob().stopSuspendedPod()
	s.newestJob().Status.StartTime = old
	for range 3 {
		s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonJobSuspended)
		s.advanceClock(time.Hour).Pods = nil // the operator does not remember it after a restart
	}
	s.newestJob().Spec.Suspend = new(false)
	s.wantPhase(v1alpha1.SessionCreating, "")
	s.admit().wantPhase(v1alpha1.SessionCreating, "")
	s.wantActiveSeconds(10)
}

func TestSuspendedSessionWithoutTimeLeftFails(t *testing.T) {
	s := newAdmittedScenario(t, withTimeout(100))
	decision := s.advanceClock(100*time.Second).suspendJob().stopSuspendedPod().wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonDeadlineExceeded)
	require.True(t, len(decision.DeleteJobs) == 1, "its Job stays in the queue")
}

func TestIdleTimeStartsAgainWhenTheJobIsResumed(t *testing.T) {
	s := newQueuedScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(60) })
	s.decideAndRecord()
	s.admit().startRunner()
	s.Activity = &Activity{RenewTime: s.Now, ObservedTime: s.Now, CreationTime: testStartTime}
	s.wantPhase(v1alpha1.SessionRunning, "")
	s.suspendJob().stopSuspendedPod().wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	s.advanceClock(time.Hour).admit().startRunner().wantPhase(v1alpha1.SessionRunning, "")
	s.advanceClock(time.Minute).wantPhase(v1alpha1.SessionRunning, "")
	s.Activity.RenewTime, s.Activity.ObservedTime = s.Now, s.Now
	s.wantPhase(v1alpha1.SessionRunning, "")
	s.advanceClock(time.Minute).wantPhase(v1alpha1.SessionStopping, "")
}

// The runner that starts again continues the cost of its attempt: see docs/runner.md.
func TestCostOfAPreemptedAttemptCountsOnce(t *testing.T) {
	s := newQueuedScenario(t, withMaxCost("2"))
	s.decideAndRecord()
	s.admit().startRunner().reportCost("1").wantPhase(v1alpha1.SessionRunning, "")
	s.suspendJob().stopSuspendedPod().wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	s.advanceClock(time.Minute).admit().startRunner().reportCost("1.5").wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("1.5")
	s.reportCost("2").wantPhase(v1alpha1.SessionStopping, "")
	s.wantTotalCost("2")
}
