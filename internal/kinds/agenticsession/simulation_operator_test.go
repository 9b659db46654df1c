package agenticsession

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// reconcileOnce simulates a reconciliation: observe, decide, record, act. The operator may crash
// between any two requests. It returns whether anything was written.
func (w *simulation) reconcileOnce() bool {
	in := Observation{
		Session: w.cached.session.DeepCopy(), Runner: w.runner, Jobs: w.cached.jobs, Pods: w.cached.pods,
		CreatedJobs: w.rememberedJobs, Now: w.now, Activity: w.lease.observed,
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
		if acts := len(decision.DeleteJobs) > 0 || decision.CreateJob != nil || decision.SetDeadline != nil; acts && !wrote && version != w.version {
			w.counts["conflict"]++ // the operator asserts that the session is fresh
			return true
		}
		refusal, acted := w.executeDecision(&in, &decision)
		if refusal == nil || tries > 1 {
			return wrote || acted
		}
		in.Refusal, in.Answers = refusal, Answers{}
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
			if in.Answers.Jobs == nil {
				in.Answers.Jobs = map[string]*batchv1.Job{}
			}
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
		if w.maybeCrash() {
			return nil, true
		}
		acted = true
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
	if d.CreateJob == nil {
		return nil, acted
	}
	if w.maybeCrash() {
		return nil, true
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
	for _, j := range w.jobs {
		if j.job.Name == job.Name {
			w.logf("%s already exists", job.Name)
			return
		}
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
		w.holdInQueue(simulated)
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

// holdInQueue suspends a Job that is being created, as Kueue's webhook does.
func (w *simulation) holdInQueue(j *simulatedJob) {
	j.job.Spec.Suspend, j.job.Status.StartTime = new(true), nil
	w.setSuspended(j, corev1.ConditionTrue)
	j.isHeld = true
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
