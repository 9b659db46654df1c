package agenticsession

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// This property test simulates a cluster with random events: runners start, end, fail, hang and ignore their termination; Pods are
// evicted; users delete Jobs; images are missing; the API server refuses objects; the operator reads stale caches, gets conflicts, and
// crashes between any two requests; the user stops, resumes and reruns the session. The invariants are:
//
//   - at most one Job is active, which a queue may suspend and resume,
//   - all runners together do not run longer than the session's timeout, plus a second for each and the time until the
//     operator observes a start,
//   - a runner that reported a cost beyond the limit, or no activity for inactivityTimeout, does not continue for longer
//     than the operator takes to observe that; no attempt starts beyond the limit, and no cost that the operator
//     observed is lost,
//   - no attempt is created twice,
//   - the recorded outcomes are the actual ones, and a record never changes,
//   - when the events end the session settles in the state that its user requested, without an active Job.
//
// SESSION_RUNS sets the number of simulations, and SESSION_SEED the first seed, to repeat one.
func TestRandomEventsNeverBreakInvariants(t *testing.T) {
	t.Parallel()
	runs, first := testbuilder.NumberFromEnv(t, "SESSION_RUNS", 300), testbuilder.NumberFromEnv(t, "SESSION_SEED", 1)
	events := []string{"Job", "crash", "conflict", "stop", "deadline", "idle runner", "expensive runner", "preemption"}
	simulateSeeds(t, runs, first, events, func(seed uint64) *world {
		w := newSimulation(seed)
		w.runToCompletion()
		w.counts["Job"] = len(w.createdCounts)
		return &w.world
	})
}

// world is what the simulations of clusters have in common.
type world struct {
	rng      *rand.Rand
	now      time.Time
	uidCount int

	faultsDisabled bool
	// counts of events.
	counts          map[string]int
	log, violations []string
}

func newWorld(seed, stream uint64) world {
	return world{rng: rand.New(rand.NewPCG(seed, stream)), now: testStartTime, counts: map[string]int{}}
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) newUID(prefix string) types.UID {
	w.uidCount++
	return types.UID(fmt.Sprintf("%s-%d", prefix, w.uidCount))
}

// timestamp is a time as the API server stores it.
func timestamp(at time.Time) metav1.Time { return metav1.NewTime(at.Truncate(time.Second)) }

func (w *world) logf(format string, args ...any) {
	w.log = append(w.log, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (w *world) violate(format string, args ...any) {
	w.logf("VIOLATION "+format, args...)
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// simulateSeeds runs simulations at the same time, and checks that each of these events occurred in one of them.
func simulateSeeds(t *testing.T, runs, first int, events []string, simulate func(seed uint64) *world) {
	t.Helper()
	var next atomic.Int64
	next.Store(int64(first) - 1)
	var mu sync.Mutex
	total := map[string]int{}
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for seed := next.Add(1); seed < int64(first+runs) && !t.Failed(); seed = next.Add(1) {
				w := simulate(uint64(seed))
				for _, violation := range w.violations {
					t.Errorf("seed %d: %s\n%s", seed, violation, strings.Join(w.log, "\n"))
				}
				mu.Lock()
				for name, count := range w.counts {
					total[name] += count
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	t.Logf("%d runs: %v", runs, total)
	for _, name := range events {
		require.True(t, total[name] > 0, "no simulation contained: %s", name)
	}
}

// simulation is a simulated cluster with one session.
type simulation struct {
	world

	session *v1alpha1.AgenticSession
	version int
	runner  *v1alpha1.SessionRunner
	jobs    []*simulatedJob

	// cached is the content of the operator's caches.
	cached struct {
		session *v1alpha1.AgenticSession
		version int
		jobs    []*batchv1.Job
		pods    []corev1.Pod
	}
	// rememberedJobs are the Jobs that the operator's process remembers.
	rememberedJobs map[string]types.UID

	// createdCounts is how often Jobs were created, by name; deletedByUsers are those that users
	// deleted.
	createdCounts  map[string]int
	deletedByUsers map[string]bool
	// actualOutcomes of the Jobs, by name.
	actualOutcomes map[string]string
	// totalRunTime is how long all Jobs ran before their termination.
	totalRunTime time.Duration
	recordedRuns map[string]v1alpha1.SessionAttempt
	lease        simulatedLease
	// hasQueue means that a queue holds the Jobs.
	hasQueue bool
	// deletedPod is the last Pod of a suspended Job, which the operator remembers until it crashes.
	deletedPod *corev1.Pod
}

// simulatedJob is a Job and its Pod.
type simulatedJob struct {
	job *batchv1.Job
	pod *corev1.Pod
	// The runner starts, renews its Lease last, reports that the session costs more than its limit, and exits with exitCode.
	startTime, renewedTime, overLimitTime, exitTime time.Time
	exitCode                                        int32
	// isHeld means that a queue holds the Job, so that it has no Pod. With imageMissing, the runner cannot start. Idle runners
	// renew their Lease only once.
	isHeld, imageMissing, idle bool
	// The Pod ends terminationDuration after it was terminated. deadlineSetTime is when the operator changed the Job's deadline.
	terminationTime, deadlineSetTime time.Time
	terminationDuration              time.Duration
	endReason                        string
}

func (j *simulatedJob) isActive() bool { return decision.FindEndCondition(j.job) == nil }

const (
	simulatedTimeoutSeconds = 600
	// simulatedDelay is longer than the operator takes to observe a start, with stale caches, conflicts and crashes.
	simulatedDelay = time.Minute
)

func newSimulation(seed uint64) *simulation {
	w := &simulation{
		world: newWorld(seed, 0), rememberedJobs: map[string]types.UID{}, createdCounts: map[string]int{}, deletedByUsers: map[string]bool{},
		actualOutcomes: map[string]string{}, recordedRuns: map[string]v1alpha1.SessionAttempt{}, runner: newRunnerWithLease(),
	}
	w.session = &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "sim", Namespace: "ns", UID: "session", Generation: 1}}
	spec := &w.session.Spec
	spec.Prompt = "x"
	spec.Limits.Timeout, spec.Limits.StartupTimeout = seconds(simulatedTimeoutSeconds), seconds(120)
	spec.Interactive = w.chance(30)
	if w.chance(50) {
		spec.Retry = &v1alpha1.SessionRetry{Retry: v1alpha1.Retry{Limit: new(int32(w.rng.IntN(4)))}, OnDisruption: w.chance(50)}
	}
	if w.chance(50) {
		spec.Limits.InactivityTimeout = seconds(simulatedInactivitySeconds)
	}
	if w.chance(50) {
		spec.Limits.MaxCostUSD = new(v1alpha1.Number("1"))
	}
	w.hasQueue = w.chance(40)
	w.lease = simulatedLease{isHostile: w.chance(30), reported: map[string]int64{}, observedCosts: map[string]int64{}}
	w.refreshCache()
	return w
}

func newRunnerWithLease() *v1alpha1.SessionRunner {
	runner := newTestRunner()
	runner.Spec.ActivityLease = true
	return runner
}

// runToCompletion simulates random events for a while, then continues without faults until nothing changes.
func (w *simulation) runToCompletion() {
	for range 60 + w.rng.IntN(100) {
		w.simulateEvent()
		w.reconcileOnce()
		w.checkInvariants()
		if len(w.violations) > 0 {
			return
		}
	}
	w.faultsDisabled = true
	w.runner = newRunnerWithLease()
	quiet := 0
	for range 500 {
		w.now = w.now.Add(5 * time.Second)
		w.advanceJobs()
		w.refreshCache()
		wrote := w.reconcileOnce()
		w.checkInvariants()
		if wrote || !w.isSettled() {
			quiet = 0
			continue
		}
		quiet++
		if quiet > 3 {
			return
		}
	}
	w.violate("the session does not settle: %s, %+v", w.session.Status.Phase, w.session.Status)
}

func (w *simulation) isSettled() bool {
	if slices.ContainsFunc(w.jobs, (*simulatedJob).isActive) {
		return false
	}
	switch w.session.Status.Phase {
	case v1alpha1.SessionStopped:
		return w.session.Spec.Suspend || w.session.Status.StoppedReason == v1alpha1.StopInactivity
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed:
		return !IsRerunRequested(w.session, &w.session.Status)
	default:
		return false
	}
}

func (w *simulation) simulateEvent() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(8000)) * time.Millisecond)
	switch dice := w.rng.IntN(100); {
	case dice < 6:
		w.updateSpec("mode", func(spec *v1alpha1.AgenticSessionSpec) { spec.Suspend = !spec.Suspend })
	case dice < 12:
		w.updateSpec("run again", requestNextRun)
	case dice < 14:
		w.updateSpec("inputs", func(spec *v1alpha1.AgenticSessionSpec) { spec.DisplayName += "x" })
	case dice < 16:
		if w.runner != nil {
			w.runner = nil
		} else {
			w.runner = newRunnerWithLease()
		}
		w.logf("SessionRunner: %t", w.runner != nil)
	case dice < 20 && len(w.jobs) > 0:
		w.disturbJob(w.jobs[w.rng.IntN(len(w.jobs))])
	}
	w.advanceJobs()
	if w.chance(75) {
		w.refreshCache()
	}
}

func (w *simulation) updateSpec(description string, change func(*v1alpha1.AgenticSessionSpec)) {
	w.session = w.session.DeepCopy()
	change(&w.session.Spec)
	w.session.Generation++
	w.version++
	w.logf("user: %s: suspend %t, rerun %v", description, w.session.Spec.Suspend, w.session.Spec.Rerun)
}

func (w *simulation) disturbJob(j *simulatedJob) {
	if !j.isActive() || j.job.DeletionTimestamp != nil {
		return
	}
	if w.chance(50) {
		w.logf("a user deletes %s", j.job.Name)
		w.deletedByUsers[j.job.Name] = true
		w.deleteJob(j)
	} else if j.terminationTime.IsZero() && !j.isHeld && j.pod.Status.Phase != corev1.PodSucceeded {
		w.logf("%s is evicted", j.job.Name)
		j.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
		w.terminatePod(j, v1alpha1.ReasonEvicted)
	}
}

// terminatePod terminates a Pod, which ends after a random time.
func (w *simulation) terminatePod(j *simulatedJob, why string) {
	if !j.terminationTime.IsZero() {
		return
	}
	j.terminationTime, j.endReason, j.terminationDuration = w.now, why, time.Duration(w.rng.IntN(25))*time.Second
	if !j.startTime.IsZero() {
		w.totalRunTime += w.now.Sub(j.startTime)
	}
}

func (w *simulation) deleteJob(j *simulatedJob) {
	if j.job.DeletionTimestamp != nil {
		return
	}
	j.job.DeletionTimestamp = new(timestamp(w.now))
	j.job.Generation++
	if j.isActive() {
		w.terminatePod(j, "deleted")
	}
}

// advanceJobs simulates the Job controller and the kubelet.
func (w *simulation) advanceJobs() {
	var left []*simulatedJob
	for _, j := range w.jobs {
		w.advanceJob(j)
		if j.job.DeletionTimestamp != nil && (!j.isActive() || j.endReason == "removed") {
			w.logf("%s is deleted", j.job.Name)
			continue
		}
		left = append(left, j)
	}
	w.jobs = left
}

func (w *simulation) advanceJob(j *simulatedJob) {
	if !j.isActive() || w.advanceQueue(j) && j.terminationTime.IsZero() {
		return
	}
	runner := &j.pod.Status.ContainerStatuses[0]
	if deadline := j.job.Spec.ActiveDeadlineSeconds; deadline != nil && j.terminationTime.IsZero() {
		if over := j.job.Status.StartTime.Add(time.Duration(*deadline) * time.Second); !over.After(w.now) && !(j.isRunnerRunning() && j.exitTime.Before(over)) {
			late := w.now
			w.now = slices.MaxFunc([]time.Time{over, j.deadlineSetTime}, time.Time.Compare) // the Job controller acts on time
			w.terminatePod(j, v1alpha1.ReasonDeadlineExceeded)
			w.now = late
			w.counts["deadline"]++
		}
	}
	switch {
	case !j.terminationTime.IsZero() && !j.terminationTime.Add(j.terminationDuration).After(w.now):
		if j.job.DeletionTimestamp != nil {
			j.endReason = "removed"
			return
		}
		if j.endReason == endReasonSuspended {
			w.endSuspendedPod(j)
			return
		}
		runner.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143, StartedAt: timestamp(j.startTime)}}
		w.endJob(j, batchv1.JobFailed, j.endReason)
	case !j.terminationTime.IsZero():
	case runner.State.Running != nil && j.exitTime.After(w.now):
		w.writeLease(j)
	case runner.State.Running != nil:
		runner.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: j.exitCode, Message: `{"costUSD": 0.01}`, StartedAt: timestamp(j.startTime),
		}}
		w.totalRunTime += j.exitTime.Sub(j.startTime)
		if j.exitCode == 0 {
			j.pod.Status.Phase = corev1.PodSucceeded
			w.endJob(j, batchv1.JobComplete, "")
			return
		}
		w.endJob(j, batchv1.JobFailed, v1alpha1.ReasonExitedWithError)
	case runner.State.Running == nil && j.imageMissing && !w.faultsDisabled:
		runner.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
	case runner.State.Running == nil && (w.faultsDisabled || w.chance(60)):
		runner.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: timestamp(w.now)}}
		runner.Ready, j.startTime = true, w.now
		j.exitTime = w.now.Add(time.Duration(w.rng.IntN(90)) * time.Second)
		if w.chance(10) {
			j.exitTime = w.now.Add(24 * time.Hour)
		}
	}
}

func (j *simulatedJob) isRunnerRunning() bool {
	return !j.isHeld && j.pod.Status.ContainerStatuses[0].State.Running != nil
}

func (w *simulation) endJob(j *simulatedJob, kind batchv1.JobConditionType, why string) {
	reason := batchv1.JobReasonBackoffLimitExceeded
	if why == v1alpha1.ReasonDeadlineExceeded {
		reason = why
	}
	at := timestamp(w.now)
	j.job.Status.Conditions = append(j.job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: at})
	j.job.Generation++
	w.actualOutcomes[j.job.Name] = string(v1alpha1.RunCompleted)
	if kind == batchv1.JobFailed {
		j.pod.Status.Phase = corev1.PodFailed
		w.actualOutcomes[j.job.Name] = why
	}
	w.logf("%s ends: %s", j.job.Name, w.actualOutcomes[j.job.Name])
}

func (w *simulation) refreshCache() {
	w.cached.session, w.cached.version = w.session.DeepCopy(), w.version
	w.cached.jobs, w.cached.pods = w.liveObjects()
	w.lease.observe(w.now)
}

func (w *simulation) liveObjects() ([]*batchv1.Job, []corev1.Pod) {
	var jobs []*batchv1.Job
	var pods []corev1.Pod
	for _, j := range w.jobs {
		jobs = append(jobs, j.job.DeepCopy())
		if !j.isHeld {
			pods = append(pods, *j.pod.DeepCopy())
		}
	}
	if w.deletedPod != nil {
		pods = append(pods, *w.deletedPod)
	}
	return jobs, pods
}

func (w *simulation) checkInvariants() {
	if ended := slices.DeleteFunc(slices.Clone(w.jobs), (*simulatedJob).isActive); len(w.jobs) > len(ended)+1 {
		w.violate("%d Jobs are active", len(w.jobs)-len(ended))
	}
	// The API server stores times in whole seconds, and a runner starts before the operator observes it.
	if w.totalRunTime > simulatedTimeoutSeconds*time.Second+time.Duration(len(w.createdCounts))*time.Second+simulatedDelay {
		w.violate("all Jobs together ran for %s", w.totalRunTime)
	}
	for _, run := range w.session.Status.Attempts {
		key := fmt.Sprintf("%d/%d/%s", run.Run, run.Attempt, run.JobName)
		if was, known := w.recordedRuns[key]; known {
			if was.Outcome != run.Outcome || was.Reason != run.Reason {
				w.violate("the record of %s changed from %s (%s) to %s (%s)", key, was.Outcome, was.Reason, run.Outcome, run.Reason)
			}
			continue
		}
		w.recordedRuns[key] = run
		w.checkRunRecord(&run)
	}
	if s := &w.session.Status; s.Phase == v1alpha1.SessionRunning && s.Attempt.RunnerStartTime == nil {
		w.violate("the session runs without a runnerStartTime")
	}
	w.checkLimits()
}

func (w *simulation) checkRunRecord(run *v1alpha1.SessionAttempt) {
	truth, ended := w.actualOutcomes[run.JobName]
	switch {
	case run.Outcome == v1alpha1.RunStopped:
	case ended && run.Outcome == v1alpha1.RunCompleted && truth != string(v1alpha1.RunCompleted),
		ended && run.Outcome != v1alpha1.RunCompleted && run.Reason != truth && run.Reason != v1alpha1.ReasonPodLost && run.Reason != v1alpha1.ReasonImagePull:
		w.violate("%s ended as %s and is recorded as %s (%s)", run.JobName, truth, run.Outcome, run.Reason)
	case !ended && run.Outcome == v1alpha1.RunCompleted:
		w.violate("%s has not ended and is recorded as Completed", run.JobName)
	case run.Reason == v1alpha1.ReasonPodLost && !w.deletedByUsers[run.JobName]:
		w.violate("%s is recorded as lost, but no client deleted it", run.JobName)
	}
}

// reconcileOnce simulates a reconciliation, and returns whether it wrote anything. The operator may crash between any two requests.
func (w *simulation) reconcileOnce() bool {
	in := Observation{
		Session: w.cached.session.DeepCopy(), Runner: w.runner, Jobs: w.cached.jobs, Pods: w.cached.pods,
		CreatedJobs: w.rememberedJobs, Now: w.now, Activity: w.lease.observed, Answers: Answers{Jobs: map[string]*batchv1.Job{}},
	}
	if w.deletedPod != nil {
		in.DeletedPod = w.deletedPod.UID
	}
	version := w.cached.version
	for tries := 0; ; tries++ {
		decision := w.decideWithAnswers(&in)
		wrote := decision.ChangesStatus(in.Session)
		if wrote && !w.recordStatus(&in, &version, &decision) {
			return true
		}
		if decision.ChangesJobs() && !wrote && version != w.version {
			w.counts["conflict"]++ // the operator asserts that the session is fresh
			return true
		}
		refusal, acted := w.executeDecision(&in, &decision)
		if refusal == nil || tries > 1 {
			return wrote || acted
		}
		in.Refusal, in.Answers = refusal, Answers{Jobs: map[string]*batchv1.Job{}}
	}
}

func (w *simulation) decideWithAnswers(in *Observation) Decision {
	for range 5 {
		decision := Decide(*in)
		switch {
		case decision.Question == nil:
			return decision
		case decision.Question.AllJobs:
			in.Jobs, in.Pods = w.liveObjects()
			in.Answers.Listed = true
		default:
			in.Answers.Jobs[decision.Question.JobName] = nil
			jobs, pods := w.liveObjects()
			for _, job := range jobs {
				if job.Name == decision.Question.JobName {
					in.Answers.Jobs[job.Name] = job
					in.Pods = pods
				}
			}
		}
	}
	w.violate("Decide keeps asking questions")
	return Decision{}
}

func (w *simulation) maybeCrash() bool {
	if w.faultsDisabled || !w.chance(4) {
		return false
	}
	w.logf("operator crashes")
	w.counts["crash"]++
	w.rememberedJobs, w.deletedPod = map[string]types.UID{}, nil
	w.lease.forget(w.now)
	return true
}

func (w *simulation) recordStatus(in *Observation, version *int, decision *Decision) bool {
	if w.maybeCrash() {
		return false
	}
	if *version != w.version {
		w.logf("conflict")
		w.counts["conflict"]++
		return false
	}
	before := w.session.Status.Phase
	w.session = w.session.DeepCopy()
	w.session.Status = *decision.Status.DeepCopy()
	w.version++
	*version = w.version
	in.Session = w.session.DeepCopy()
	if before != decision.Status.Phase {
		w.logf("phase %s, job %q, run %d, attempt %d", decision.Status.Phase, decision.Status.Attempt.JobName, decision.Status.Run, decision.Status.Attempt.Attempt)
	}
	return true
}

func (w *simulation) executeDecision(in *Observation, d *Decision) (refusal *decision.Refusal, acted bool) {
	for _, job := range d.DeleteJobs {
		if acted = true; w.maybeCrash() {
			return nil, true
		}
		for _, j := range w.jobs {
			if j.job.UID == job.UID && j.job.Generation == job.Generation { // only the observed version
				w.logf("operator deletes %s", job.Name)
				w.counts["stop"]++
				w.deleteJob(j)
			}
		}
	}
	if deadline := d.SetDeadline; deadline != nil {
		if w.maybeCrash() {
			return nil, true
		}
		acted = w.setDeadline(deadline) || acted
	}
	if d.CreateJob == nil || w.maybeCrash() {
		return nil, acted || d.CreateJob != nil
	}
	if !w.faultsDisabled && w.chance(10) {
		class := []decision.Class{decision.QuotaExceeded, decision.AlreadyExists, decision.Invalid, decision.PolicyDenied, decision.ServiceAccountMissing}[w.rng.IntN(5)]
		w.logf("refused: %s", class)
		return &decision.Refusal{Class: class, Kind: "Pod", Message: "refused"}, true
	}
	w.createJob(in, d.CreateJob)
	return nil, true
}

// setDeadline changes the deadline of a Job, and reports whether it was another one.
func (w *simulation) setDeadline(deadline *JobDeadline) bool {
	for _, j := range w.jobs {
		if j.job.UID == deadline.Job.UID && *j.job.Spec.ActiveDeadlineSeconds != *deadline.Seconds {
			w.logf("the deadline of %s is %d seconds", j.job.Name, *deadline.Seconds)
			j.job.Spec.ActiveDeadlineSeconds, j.deadlineSetTime = deadline.Seconds, w.now
			j.job.Generation++
			return true
		}
	}
	return false
}

func (w *simulation) createJob(in *Observation, job *batchv1.Job) {
	if slices.ContainsFunc(w.jobs, func(j *simulatedJob) bool { return j.job.Name == job.Name }) {
		w.logf("%s already exists", job.Name)
		return
	}
	w.createdCounts[job.Name]++
	w.checkCostBeforeAttempt(in, job.Name)
	if w.createdCounts[job.Name] > 1 && !w.deletedByUsers[job.Name] {
		w.violate("%s is created again", job.Name)
	}
	if job.Spec.ActiveDeadlineSeconds == nil || !metav1.IsControlledBy(job, in.Session) {
		w.violate("%s has no deadline or no owner", job.Name)
	}
	created := job.DeepCopy()
	created.UID = w.newUID("job")
	created.CreationTimestamp = timestamp(w.now)
	created.Status.StartTime = new(timestamp(w.now))
	simulated := &simulatedJob{
		job: created, pod: w.newSimulatedPod(created), imageMissing: w.chance(15), exitCode: int32(max(w.rng.IntN(4)-1, 0)), idle: w.chance(30),
	}
	if w.hasQueue {
		created.Spec.Suspend, created.Status.StartTime = new(true), nil // as Kueue's webhook does
		w.setSuspended(simulated, corev1.ConditionTrue)
		simulated.isHeld = true
	}
	w.jobs = append(w.jobs, simulated)
	w.logf("%s is created with a deadline of %d seconds", created.Name, *created.Spec.ActiveDeadlineSeconds)
	if !w.maybeCrash() {
		w.rememberedJobs[created.Name] = created.UID
	}
}

const (
	simulatedInactivitySeconds = 60
	// simulatedIdleDelay is longer than the operator takes to observe that a runner is idle: after a crash, it counts from
	// the restart what it had not recorded yet.
	simulatedIdleDelay = simulatedDelay + activityPrecision
)

// simulatedLease is the session's Lease.
type simulatedLease struct {
	renewTime time.Time
	cost      string
	// observed is what the operator's process remembers of it; nil if it has not observed it.
	observed *Activity
	// isHostile means that runners also report costs that are lower than before, of another attempt, or not valid.
	isHostile bool
	// reported are the costs that runners reported, and observedCosts those that the operator observed, in millionths of
	// a dollar by Job.
	reported, observedCosts map[string]int64
}

// observe updates what the operator remembers, as its cache does.
func (l *simulatedLease) observe(now time.Time) {
	previous := l.observed
	if previous == nil {
		previous = &Activity{CreationTime: testStartTime}
	}
	next := *previous
	if next.ObservedTime.IsZero() || !next.RenewTime.Equal(l.renewTime) {
		next.RenewTime, next.ObservedTime = l.renewTime, now
	}
	next.Cost = next.Cost.Next(l.cost)
	l.observed = &next
	if job := next.Cost.Job; job != "" {
		l.observedCosts[job] = max(l.observedCosts[job], next.Cost.Micros())
	}
}

// forget simulates a new process, which observes the Lease before it reconciles.
func (l *simulatedLease) forget(now time.Time) {
	l.observed = nil
	l.observe(now)
}

// writeLease lets a runner report activity, at a time that may be wrong, and cost.
func (w *simulation) writeLease(j *simulatedJob) {
	if w.chance(50) && (!j.idle || j.renewedTime.IsZero()) {
		w.lease.renewTime, j.renewedTime = w.now.Add(time.Duration(w.rng.IntN(60)-50)*time.Hour), w.now
	}
	if !w.chance(30) {
		return
	}
	name := j.job.Name
	if w.lease.isHostile && w.chance(40) {
		w.lease.cost = []string{"", "broken", name + "=-5", name + "=0.000001", "sim-r1-a1=3", name + "=1e9"}[w.rng.IntN(6)]
		w.logf("%s reports %q", name, w.lease.cost)
		return
	}
	w.lease.reported[name] += w.rng.Int64N(300_000)
	w.lease.cost = name + "=" + string(formatDollars(w.lease.reported[name]))
	w.logf("%s reports %q", name, w.lease.cost)
	if limit := w.session.Spec.Limits.MaxCostUSD; limit != nil && j.overLimitTime.IsZero() && w.closedCosts(name)+w.lease.reported[name] >= microsOf(limit) {
		j.overLimitTime = w.now
	}
}

// closedCosts returns what the operator recorded of the attempts before this Job's.
func (w *simulation) closedCosts(job string) (micros int64) {
	micros = microsOf(w.session.Status.TotalCostUSD)
	if w.session.Status.Attempt.JobName == job {
		micros -= microsOf(w.session.Status.Attempt.CostUSD)
	}
	return micros
}

// checkCostBeforeAttempt checks the cost when the Job of an attempt is created. An attempt whose Job a user deleted before
// its start was recorded gets a second Job. Its cost may not be recorded yet, but is still in the Lease.
func (w *simulation) checkCostBeforeAttempt(in *Observation, job string) {
	total := microsOf(in.Session.Status.TotalCostUSD)
	if limit := in.Session.Spec.Limits.MaxCostUSD; limit != nil && total >= microsOf(limit) {
		w.violate("an attempt starts although the session cost %d millionths of a dollar", total)
	}
	observed := int64(0)
	for name, micros := range w.lease.observedCosts {
		if name != job {
			observed += micros
		}
	}
	if observed > total && !w.lease.isHostile {
		w.violate("the recorded cost is %d, but the operator observed %d", total, observed)
	}
}

func (w *simulation) checkLimits() {
	for _, j := range w.jobs {
		if !j.isActive() || !j.isRunnerRunning() {
			continue
		}
		isIdle := w.session.Spec.Limits.InactivityTimeout != nil && !j.renewedTime.IsZero() &&
			w.now.Sub(j.renewedTime) > simulatedInactivitySeconds*time.Second
		isExpensive := !w.lease.isHostile && !j.overLimitTime.IsZero()
		switch {
		case !j.terminationTime.IsZero() && j.endReason == "deleted" && isExpensive:
			w.counts["expensive runner"]++
		case !j.terminationTime.IsZero() && j.endReason == "deleted" && isIdle:
			w.counts["idle runner"]++
		case !j.terminationTime.IsZero():
		case isExpensive && w.now.Sub(j.overLimitTime) > simulatedDelay:
			w.violate("%s continues %s after its cost reached the limit", j.job.Name, w.now.Sub(j.overLimitTime))
		case isIdle && w.now.Sub(j.renewedTime) > simulatedInactivitySeconds*time.Second+simulatedIdleDelay:
			w.violate("%s continues %s after its last activity", j.job.Name, w.now.Sub(j.renewedTime))
		}
	}
}

const endReasonSuspended = "suspended"

// newSimulatedPod returns a Pod of a Job that has not started its runner.
func (w *simulation) newSimulatedPod(job *batchv1.Job) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: job.Name + "-x", UID: w.newUID("pod"), CreationTimestamp: timestamp(w.now),
		OwnerReferences: []metav1.OwnerReference{{UID: job.UID, Controller: new(true)}},
	}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainer}}
	return pod
}

func (w *simulation) setSuspended(j *simulatedJob, status corev1.ConditionStatus) {
	j.job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: status, LastTransitionTime: timestamp(w.now)}}
	j.job.Generation++
}

// preempt suspends a running Job. Its Pod ends after a while.
func (w *simulation) preempt(j *simulatedJob) {
	w.logf("%s is preempted", j.job.Name)
	w.counts["preemption"]++
	w.terminatePod(j, endReasonSuspended)
	j.job.Spec.Suspend, j.job.Status.StartTime = new(true), nil
	j.job.Status.Active, j.job.Status.Terminating = 0, new(int32(1))
	j.pod.DeletionTimestamp, j.pod.DeletionGracePeriodSeconds = new(timestamp(w.now.Add(gracePeriod))), new(int64(GracePeriodSeconds))
	w.setSuspended(j, corev1.ConditionTrue)
}

// endSuspendedPod removes the Pod of a suspended Job. The operator may remember it as it was last observed.
func (w *simulation) endSuspendedPod(j *simulatedJob) {
	j.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 143, StartedAt: timestamp(j.startTime), FinishedAt: timestamp(w.now),
	}}
	j.pod.Status.Phase = corev1.PodFailed
	w.deletedPod = j.pod.DeepCopy()
	j.isHeld, j.endReason = true, ""
	j.terminationTime, j.startTime, j.renewedTime, j.overLimitTime = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	j.job.Status.Terminating = new(int32(0))
	j.job.Generation++
}

// advanceQueue admits a held Job, or preempts a running one. It reports whether the Job is held.
func (w *simulation) advanceQueue(j *simulatedJob) bool {
	switch {
	case j.endReason == endReasonSuspended && j.job.DeletionTimestamp != nil:
		j.endReason = "deleted"
	case j.isHeld && j.terminationTime.IsZero() && (w.faultsDisabled || w.chance(20)):
		w.logf("%s is admitted", j.job.Name)
		j.isHeld, j.job.Spec.Suspend = false, new(false)
		j.job.Status.StartTime, j.job.Status.Active = new(timestamp(w.now)), 1
		j.pod = w.newSimulatedPod(j.job)
		w.setSuspended(j, corev1.ConditionFalse)
	case w.hasQueue && !j.isHeld && j.isRunnerRunning() && j.terminationTime.IsZero() && !w.faultsDisabled && w.chance(10):
		w.preempt(j)
	}
	return j.isHeld
}
