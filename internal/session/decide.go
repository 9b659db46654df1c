package session

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// What holds where the API server's defaults are not, as in an object of an older CRD.
const (
	defaultTimeoutSeconds        = 14400
	defaultStartupTimeoutSeconds = 600
)

// Decide plans the next moves of a session.
func Decide(in Observation) Decision {
	d := newEvaluation(in)
	if !in.Session.DeletionTimestamp.IsZero() {
		d.decision.Status = d.status
		return d.decision // the garbage collector has all that is owned, at once and without us
	}
	d.accept()
	d.settle()
	if d.decision.Question == nil && d.status.Job == "" {
		d.rest()
	}
	if d.decision.Question != nil {
		return Decision{Question: d.decision.Question, Status: *in.Session.Status.DeepCopy()}
	}
	d.sweep()
	d.summarise()
	d.decision.Status = d.status
	d.decision.Events = eventsBetween(&in.Session.Status, &d.status)
	return d.decision
}

// evaluation is one call of Decide on its way.
type evaluation struct {
	observation Observation
	now         metav1.Time
	spec        *v1alpha1.AgenticSessionSpec
	status      v1alpha1.AgenticSessionStatus
	decision    Decision

	// resolved is what the session runs as; nil if that is refused, or not known.
	resolved *runnerSettings
	// waits is why no Job is made for now, and missing says that it must not take long.
	waits   *problem
	missing bool
	// current Job and its Pod, if they are there.
	current *batchv1.Job
	pod     *corev1.Pod
}

// problem is why something is not as it should be, as a condition has it.
type problem struct{ reason, message string }

func newEvaluation(in Observation) *evaluation {
	d := &evaluation{
		observation: in,
		now:         metav1.NewTime(in.Now.Truncate(time.Second)), // as it is stored
		spec:        &in.Session.Spec,
		status:      *in.Session.Status.DeepCopy(),
	}
	d.status.ObservedGeneration = in.Session.Generation
	if d.status.Run == 0 {
		d.status.Run = max(d.spec.RunRequest, 1)
	}
	return d
}

// settle sees what became of the attempt that is open.
func (d *evaluation) settle() {
	if d.status.Job == "" {
		return
	}
	job, known := d.jobNamed(d.status.Job)
	switch {
	case !known:
	case job == nil && d.status.JobUID == "" && d.observation.CreatedJobs[d.status.Job] == "":
		d.unmade()
	case job == nil, d.status.JobUID != "" && d.status.JobUID != job.UID:
		d.gone()
	default:
		d.observe(job)
	}
}

// jobNamed is the Job of ours that has the name; nil if there is none. It asks if the cache
// does not show it: that may be behind.
func (d *evaluation) jobNamed(name string) (job *batchv1.Job, known bool) {
	if read, answered := d.observation.Answers.Jobs[name]; answered {
		return read, true
	}
	for _, job := range d.observation.Jobs {
		if job.Name == name && IsControlledBy(d.observation.Session, job) {
			return job, true
		}
	}
	if d.observation.Answers.Listed {
		return nil, true
	}
	d.decision.Question = &Question{JobName: name}
	return nil, false
}

// rest is where the session is without an open attempt. It may begin one.
func (d *evaluation) rest() {
	last := d.lastRun()
	switch {
	case last == nil || last.Outcome == v1alpha1.RunRetried:
		d.pending()
	case last.Outcome == v1alpha1.RunStopped:
		d.stopped()
	case d.spec.RunRequest > d.status.Run:
		d.beginRun()
		d.pending()
	default:
		d.finished()
	}
}

// lastRun is how the last attempt at the present run ended; nil if none has.
func (d *evaluation) lastRun() *v1alpha1.SessionRun { return lastRun(&d.status) }

func lastRun(status *v1alpha1.AgenticSessionStatus) *v1alpha1.SessionRun {
	if len(status.Runs) == 0 {
		return nil
	}
	last := &status.Runs[len(status.Runs)-1]
	if last.Run != status.Run {
		return nil
	}
	return last
}

// beginRun goes on to the run that was asked for.
func (d *evaluation) beginRun() {
	d.status.Run = d.spec.RunRequest
	d.status.Attempt, d.status.Retries, d.status.Disruptions = 0, 0, 0
	d.status.CompletionTime, d.status.WaitingSince = nil, nil
	d.status.StoppedReason = ""
}

// stopped sessions go on when their user says so. One that was stopped for its idleness
// would else be at it again.
func (d *evaluation) stopped() {
	switch {
	case d.spec.OperatingMode == v1alpha1.ModeStopped:
		d.status.StoppedReason = v1alpha1.StopUser
	case d.spec.RunRequest > d.status.Run:
		d.beginRun()
		d.pending()
	case d.status.StoppedReason == v1alpha1.StopUser || d.status.StoppedReason == "":
		d.pending()
	}
}

// finished sessions wait for the end of their time to live.
func (d *evaluation) finished() {
	ttl := d.spec.TTLSecondsAfterFinished
	if ttl == nil || d.status.CompletionTime == nil {
		return
	}
	due := d.status.CompletionTime.Add(time.Duration(*ttl) * time.Second)
	if d.reached(due) {
		d.decision.DeleteSession = true
	}
}

// reached tells whether a time has come. If not, the session is looked at then.
func (d *evaluation) reached(due time.Time) bool {
	left := due.Sub(d.observation.Now)
	if left <= 0 {
		return true
	}
	d.lookAfter(left)
	return false
}

// lookAfter has the session looked at after that time, if not before.
func (d *evaluation) lookAfter(wait time.Duration) {
	if d.decision.RequeueAfter == 0 || wait < d.decision.RequeueAfter {
		d.decision.RequeueAfter = max(wait, time.Millisecond)
	}
}

// sweep deletes Jobs of the session that run and are not the open attempt's: whoever made
// them did not know that it is over. And those that have ended, once their attempts are no
// longer recorded: else a session that is started again and again would leave one each time.
func (d *evaluation) sweep() {
	for _, job := range d.observation.Jobs {
		if job.Name == d.status.Job || !IsControlledBy(d.observation.Session, job) || !job.DeletionTimestamp.IsZero() || d.deletes(job) {
			continue
		}
		if isJobActive(job) || !d.recorded(job) {
			d.decision.DeleteJobs = append(d.decision.DeleteJobs, job)
		}
	}
}

func (d *evaluation) recorded(job *batchv1.Job) bool {
	return slices.ContainsFunc(d.status.Runs, func(run v1alpha1.SessionRun) bool { return run.Job == job.Name })
}

func (d *evaluation) deletes(job *batchv1.Job) bool {
	return slices.ContainsFunc(d.decision.DeleteJobs, func(other *batchv1.Job) bool { return other.UID == job.UID })
}

// isJobActive tells whether Pods of a Job may still run.
func isJobActive(job *batchv1.Job) bool { return findEndCondition(job) == nil }

// findEndCondition is the condition with which a Job has ended; nil if it has not. Only these two
// count: under those that come before them, and whatever the counters say, Pods still run.
func findEndCondition(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

func secondsOrDefault(value *int32, fallback int32) int32 {
	if value == nil {
		return fallback
	}
	return *value
}

// ChangesStatus reports whether a plan's status is not what is stored.
func (p *Decision) ChangesStatus(s *v1alpha1.AgenticSession) bool {
	return !equality.Semantic.DeepEqual(s.Status, p.Status)
}
