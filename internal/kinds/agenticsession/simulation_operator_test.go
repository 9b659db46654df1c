package agenticsession

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	created.CreationTimestamp = metav1.NewTime(w.now.Truncate(time.Second))
	created.Status.StartTime = new(metav1.NewTime(w.now.Truncate(time.Second)))
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
