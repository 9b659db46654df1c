package agenticsession

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	s.reconcile().admit().startRunner().wantPhase(v1alpha1.SessionRunning, "")
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
	s.newestJob().Status.Conditions = nil // the Job controller has not observed it yet
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	s.setSuspended(corev1.ConditionTrue)
	s.wantCondition(v1alpha1.ConditionRunnerStarted, metav1.ConditionFalse, v1alpha1.ReasonPodNotCreated)
	s.advanceClock(time.Hour).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	since := s.Session.Status.QueuedSince
	require.True(t, since != nil && since.Time.Equal(testStartTime), "queued since %v, want %s", since, testStartTime)
	s.admit().wantPhase(v1alpha1.SessionCreating, "")
	s.startRunner().wantPhase(v1alpha1.SessionRunning, "")
	require.True(t, s.Session.Status.QueuedSince == nil, "it is still queued")
	s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
}

func TestPreemptedSessionContinuesItsAttempt(t *testing.T) {
	s := newQueuedScenario(t, withRetryLimit(1))
	s.decideAndRecord()
	for range 3 {
		s.advanceClock(time.Minute).admit().wantPhase(v1alpha1.SessionCreating, "") // also while it remembers the Pod before
		s.startRunner().wantPhase(v1alpha1.SessionRunning, "")
		s.advanceClock(time.Minute).suspendJob().wantPhase(v1alpha1.SessionRunning, "")
		s.stopSuspendedPod().wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
		s.wantEvent(v1alpha1.EventJobSuspended)
	}
	status := &s.Session.Status
	require.True(t, status.Attempt.Attempt == 1 && status.Retries+status.Disruptions == 0 && len(status.Attempts) == 0, "%+v", status)
	require.Equal(t, 1, len(s.Jobs))
	s.admit().startRunner().advanceClock(time.Second).deletePod().wantPhase(v1alpha1.SessionRunning, "") // it is not the Pod before
	s.exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
}

func TestTimeInAQueueDoesNotCountTowardsTheTimeout(t *testing.T) {
	s := newQueuedScenario(t, withTimeout(100))
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	s.advanceClock(30 * time.Hour).admit().startRunner().decideAndRecord()
	s.advanceClock(40 * time.Second).suspendJob().stopSuspendedPod().advanceClock(3 * time.Second).reconcile().wantActiveSeconds(40)
	s.advanceClock(30 * time.Hour).reconcile().admit().advanceClock(5 * time.Second).startRunner().decideAndRecord()
	s.wantDeadline(65)
	s.advanceClock(20*time.Second).exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
	s.wantActiveSeconds(60)
}

func TestTheStartupTimeoutCountsAgainAfterAStop(t *testing.T) {
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.StartupTimeout = seconds(60) })
	s.startAttempt().startRunner().reconcile().updateSpec(suspend).decideAndRecord()
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
	s.startRunner().reconcile().advanceClock(5*time.Second).exitRunner(0, "").wantPhase(v1alpha1.SessionCompleted, "")
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
	s := newAdmittedScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.Limits.InactivityTimeout = seconds(60) })
	s.renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
	s.suspendJob().stopSuspendedPod().wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	s.advanceClock(time.Hour).admit().startRunner().wantPhase(v1alpha1.SessionRunning, "")
	s.advanceClock(time.Minute).wantPhase(v1alpha1.SessionRunning, "")
	s.renew(s.Now).wantPhase(v1alpha1.SessionRunning, "")
	s.advanceClock(time.Minute).wantPhase(v1alpha1.SessionStopping, "")
}

// The runner that starts again continues the cost of its attempt: see docs/runner.md.
func TestCostOfAPreemptedAttemptCountsOnce(t *testing.T) {
	s := newAdmittedScenario(t, withMaxCost("2"))
	s.reportCost("1").wantPhase(v1alpha1.SessionRunning, "")
	s.suspendJob().stopSuspendedPod().wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	s.advanceClock(time.Minute).admit().startRunner().reportCost("1.5").wantPhase(v1alpha1.SessionRunning, "")
	s.wantTotalCost("1.5")
	s.reportCost("2").wantPhase(v1alpha1.SessionStopping, "")
	s.wantTotalCost("2")
}

// newLimitedScenario returns a new session of user jane, whose SessionRunner has these limits; 0 means none.
func newLimitedScenario(t *testing.T, most, mostPerUser int32) *scenario {
	t.Helper()
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.UserContext = &v1alpha1.UserContext{UserID: "jane"} })
	setLimits(s.Runner, most, mostPerUser)
	s.Capacity.Verified = true
	return s
}

// newWaitingScenario returns a session that waits until another one ends.
func newWaitingScenario(t *testing.T) *scenario {
	t.Helper()
	s := newLimitedScenario(t, 1, 0)
	s.Capacity.Contenders = []Contender{openSession("a", "bob")}
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	return s
}

func setLimits(runner *v1alpha1.SessionRunner, most, mostPerUser int32) {
	if most > 0 {
		runner.Spec.Limits.MaxSessions = &most
	}
	if mostPerUser > 0 {
		runner.Spec.Limits.MaxSessionsPerUser = &mostPerUser
	}
}

func openSession(name, user string) Contender {
	return Contender{Name: name, UID: types.UID(name), User: user, IsOpen: true}
}

func waitingSession(name, user string, since time.Duration) Contender {
	return Contender{Name: name, UID: types.UID(name), User: user, Since: testStartTime.Add(since)}
}

func TestSessionWaitsInTheQueueOfItsSessionRunner(t *testing.T) {
	check := func(title string, most, mostPerUser int32, others []Contender, want string) {
		t.Run(title, func(t *testing.T) {
			s := newLimitedScenario(t, most, mostPerUser)
			s.Capacity.Contenders = others
			decision := s.decideAndRecord()
			if want == "" {
				require.True(t, decision.CreateJob != nil && decision.Status.QueuedSince == nil, "it does not start: %+v", decision.Status.Conditions)
				return
			}
			s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
			require.Equal(t, want, s.findCondition(v1alpha1.ConditionReady).Message)
			require.True(t, s.Session.Status.QueuedSince != nil && decision.RequeueAfter > 0 && len(decision.ApplyObjects) == 0, "%+v", decision)
		})
	}
	check("no limit", 0, 0, []Contender{openSession("a", "jane"), openSession("b", "jane")}, "")
	check("a free place", 2, 0, []Contender{openSession("a", "bob")}, "")
	check("all places are used", 2, 0, []Contender{openSession("a", "bob"), openSession("b", "jane")}, "SessionRunner default runs 2 of at most 2 sessions; position 1 in the queue")
	check("a lowered limit", 1, 0, []Contender{openSession("a", "bob"), openSession("b", "jane")}, "SessionRunner default runs 2 of at most 1 sessions; position 1 in the queue")
	check("the user has enough sessions", 5, 1, []Contender{openSession("a", "jane")}, "the user runs 1 of at most 1 sessions of SessionRunner default; position 1 in the queue")
	check("another user has enough", 5, 1, []Contender{openSession("a", "bob")}, "")
	check("an older session waits", 1, 0, []Contender{waitingSession("z", "bob", -time.Second)}, "SessionRunner default runs 0 of at most 1 sessions; position 2 in the queue")
	check("a session of the same second", 1, 0, []Contender{waitingSession("a", "bob", 0)}, "SessionRunner default runs 0 of at most 1 sessions; position 2 in the queue")
	check("a later session waits", 1, 0, []Contender{waitingSession("a", "bob", time.Second)}, "")
	check("the older one cannot start either", 2, 1, []Contender{openSession("a", "bob"), waitingSession("b", "bob", -time.Second)}, "")
	check("an older session of the user", 0, 1, []Contender{waitingSession("a", "jane", -time.Second)}, "earlier sessions of the user start first; position 2 in the queue")
}

// It does not fail after startupTimeout.
func TestQueuedSessionStartsWhenItIsItsTurn(t *testing.T) {
	s := newWaitingScenario(t)
	since := *s.Session.Status.QueuedSince
	s.Capacity.Contenders = []Contender{openSession("b", "bob")}
	s.advanceClock(time.Hour).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	require.True(t, s.Session.Status.QueuedSince.Equal(&since), "the session lost its position")
	s.Capacity.Contenders = nil
	s.startAttempt()
	require.True(t, s.Session.Status.QueuedSince == nil && s.Session.Status.Attempt.Runner == "default", "%+v", s.Session.Status)
}

func TestSessionThatCannotStartAnywayIsNotInTheQueue(t *testing.T) {
	for title, change := range map[string]func(s *scenario){
		"it is stopped":       func(s *scenario) { s.updateSpec(suspend) },
		"it is not accepted":  func(s *scenario) { s.Runner.Spec.Image = ""; s.Session.Spec.Image = "other" },
		"its cost is used up": func(s *scenario) { s.updateSpec(withMaxCost("0")) },
	} {
		t.Run(title, func(t *testing.T) {
			s := newWaitingScenario(t)
			change(s)
			s.decideAndRecord()
			require.True(t, s.Session.Status.QueuedSince == nil, "it is in the queue")
		})
	}
}

func TestStoppedOrDeletedSessionGivesUpItsPosition(t *testing.T) {
	s := newWaitingScenario(t)
	c, contends := NewContender(s.Session, false, s.Now.Add(time.Hour))
	require.True(t, contends && c.Since.Equal(testStartTime), "a queued session does not contend since its creation: %t, %+v", contends, c)
	stopped, deleted := s.Session.DeepCopy(), s.Session.DeepCopy()
	stopped.Spec.Suspend = true
	deleted.DeletionTimestamp = new(metav1.NewTime(s.Now))
	for _, other := range []*v1alpha1.AgenticSession{stopped, deleted} {
		_, waits := NewContender(other, false, s.Now)
		_, runs := NewContender(other, true, s.Now)
		require.True(t, !waits && runs, "it waits: %t, its open attempt has a place: %t", waits, runs)
	}
}

// Sessions that are created together are reconciled in any order.
func TestNewSessionsAreWaitedForOnlyForAMoment(t *testing.T) {
	s := newScenario(t).Session
	for age, want := range map[time.Duration]bool{0: true, newSessionAllowance - 1: true, newSessionAllowance: false, time.Hour: false} {
		_, got := NewContender(s, false, testStartTime.Add(age))
		require.True(t, got == want, "a new session contends after %s: %t, want %t", age, got, want)
	}
}

func TestChangedSessionRunnerNameDoesNotFreeThePlaceOfARunningSession(t *testing.T) {
	s := newLimitedScenario(t, 1, 0).startAttempt()
	s.updateSpec(func(spec *v1alpha1.AgenticSessionSpec) { spec.Runner = "other" })
	require.Equal(t, "default", RunnerOf(s.Session))
	s.startRunner().exitRunner(0, "").decideAndRecord()
	require.Equal(t, "other", RunnerOf(s.Session))
}

func TestSessionsOfEarlierProcessesAreReadBeforeASessionStarts(t *testing.T) {
	s := newLimitedScenario(t, 1, 0)
	s.Capacity.Verified = false
	question := Decide(s.Observation).Question
	require.True(t, question != nil && question.OpenSessions, "question %+v", question)
	s.Capacity.Contenders = []Contender{openSession("a", "bob")}
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued) // which needs no read
}

func TestARerunSessionDoesNotKeepOthersWaiting(t *testing.T) {
	s := newLimitedScenario(t, 1, 0).startAttempt().startRunner()
	s.reconcile().advanceClock(time.Hour).exitRunner(0, "").decideAndRecord()
	s.Capacity.Contenders = []Contender{waitingSession("b", "bob", time.Minute)}
	s.updateSpec(requestNextRun).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	c, _ := NewContender(s.Session, false, s.Now)
	require.True(t, c.Since.Equal(s.Now), "for other sessions, it waits since %s", c.Since)
}

// The property of the order: whatever ends first, sessions start in the order of their creation, except that users with
// enough sessions are passed over; never more than the limits run, and all run in the end.
func TestRandomQueuesKeepTheirOrderAndStarveNobody(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 2))
		runner := newTestRunner()
		setLimits(runner, int32(1+rng.IntN(4)), int32(rng.IntN(3)))
		var all []Contender
		for i := range 2 + rng.IntN(20) {
			all = append(all, waitingSession(fmt.Sprintf("s%d", i), fmt.Sprint(rng.IntN(3)), time.Duration(rng.IntN(5))*time.Second))
		}
		ended, started := 0, map[string]bool{}
		for steps := 0; ended < len(all); steps++ {
			require.True(t, steps <= 1000, "seed %d: some session never starts", seed)
			current := slices.DeleteFunc(slices.Clone(all), func(c Contender) bool { return c.User == "" })
			rng.Shuffle(len(current), func(i, j int) { current[i], current[j] = current[j], current[i] })
			next := NextSessions(runner, current)
			checkOrder(t, runner, current, next)
			for i := range all {
				if slices.Contains(next, all[i].Name) && rng.IntN(2) == 0 {
					all[i].IsOpen = true
					started[all[i].Name] = true
				} else if all[i].IsOpen && rng.IntN(3) == 0 {
					all[i] = Contender{Name: all[i].Name}
					ended++
				}
			}
			p := countPlaces(runner, current)
			require.True(t, p.open <= int(*runner.Spec.Limits.MaxSessions), "seed %d: %d sessions run", seed, p.open)
		}
		require.True(t, len(started) == len(all), "seed %d: %d of %d sessions started", seed, len(started), len(all))
	}
}

// checkOrder checks that each session that starts is preceded only by sessions that start too, or whose user has enough.
func checkOrder(t *testing.T, runner *v1alpha1.SessionRunner, contenders []Contender, next []string) {
	t.Helper()
	waiting := slices.DeleteFunc(slices.Clone(contenders), func(c Contender) bool { return c.IsOpen })
	slices.SortFunc(waiting, func(a, b Contender) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name)) })
	p := countPlaces(runner, contenders)
	var want []string
	for _, c := range waiting {
		if !p.isFull() && !p.isFullFor(c.User) {
			want = append(want, c.Name)
			p.take(c.User)
		}
	}
	require.Equal(t, want, next, cmpopts.EquateEmpty())
	hasPlace := slices.ContainsFunc(waiting, func(c Contender) bool { return HasPlace(runner, contenders, c.User) })
	require.True(t, hasPlace == (len(next) > 0), "there is a place: %t, %d sessions start", hasPlace, len(next))
}
