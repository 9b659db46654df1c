package agenticsession

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Decide returns the next actions of a session.
func Decide(observation Observation) Decision {
	unchanged := Decision{Status: *observation.Session.Status.DeepCopy()}
	if !observation.Session.DeletionTimestamp.IsZero() {
		return unchanged // the garbage collector deletes all owned objects
	}
	e := newEvaluation(observation)
	question := e.advance()
	if question == nil {
		question = e.keepWorkspace()
	}
	if question != nil {
		unchanged.Question = question
		return unchanged
	}
	e.deleteOrphanJobs()
	e.status.Phase = phaseOf(&e.status)
	e.setConditions()
	e.decision.Status, e.decision.RequeueAfter = e.status, e.timer.RequeueAfter
	e.decision.Events = eventsBetween(&observation.Session.Status, &e.status)
	return e.decision
}

type evaluation struct {
	observation Observation
	now         metav1.Time
	spec        *v1alpha1.AgenticSessionSpec
	status      v1alpha1.AgenticSessionStatus
	timer       decision.Timer
	decision    Decision

	// settings of the session; nil if they are refused or not known.
	settings *runnerSettings
	// obstacle that keeps the session from creating a Job; nil if it can.
	obstacle *obstacle
	// resultCost is the cost in the result of the open attempt's runner; nil if it is not known.
	resultCost *v1alpha1.Number
	// reports are the states of what the open attempt's runner reports; nil if it has not started.
	reports []decision.State
	// job of the open attempt and its Pod; nil if they do not exist.
	job *batchv1.Job
	pod *corev1.Pod
}

func newEvaluation(observation Observation) *evaluation {
	e := &evaluation{
		observation: observation,
		now:         metav1.NewTime(observation.Now.Truncate(time.Second)), // the API server's precision
		spec:        &observation.Session.Spec,
		status:      *observation.Session.Status.DeepCopy(),
		timer:       decision.Timer{Now: observation.Now},
	}
	e.status.QueuedSince = nil // unless it waits again
	e.status.ObservedGeneration = observation.Session.Generation
	if e.status.Run == 0 {
		e.status.Run, e.status.RerunID = 1, ptr.Deref(e.spec.Rerun, v1alpha1.Rerun{}).ID
	}
	settings, state := acceptance(observation.Session, observation.Runner)
	e.settings = settings
	e.setCondition(v1alpha1.ConditionSpecAccepted, state)
	return e
}

func (e *evaluation) advance() *Question {
	if e.status.Attempt.JobName != "" {
		job, question := findJob(&e.observation, e.status.Attempt.JobName)
		if question != nil {
			return question
		}
		if question := e.followAttempt(job); question != nil {
			return question
		}
	}
	if e.status.Attempt.JobName == "" {
		return e.betweenAttempts()
	}
	return nil
}

// findJob returns the session's Job with this name; nil if it does not exist. A Job that the cache does not contain is
// a question, because the cache may be stale.
func findJob(o *Observation, name string) (*batchv1.Job, *Question) {
	if job, answered := o.Answers.Jobs[name]; answered {
		return job, nil
	}
	for _, job := range o.Jobs {
		if job.Name == name && metav1.IsControlledBy(job, o.Session) {
			return job, nil
		}
	}
	if o.Answers.Listed {
		return nil, nil
	}
	return nil, &Question{JobName: name}
}

// betweenAttempts decides about a session without an open attempt. It resumes a stopped session only if its user
// stopped it: otherwise, a session that was stopped for inactivity would restart at once.
func (e *evaluation) betweenAttempts() *Question {
	last := lastRun(&e.status)
	isStopped := last != nil && last.Outcome == v1alpha1.RunStopped
	isStoppedByUser := e.status.StoppedReason == v1alpha1.StopUser || e.status.StoppedReason == ""
	switch ttl := e.spec.TTLSecondsAfterFinished; {
	case isStopped && e.spec.Suspend:
		e.status.StoppedReason = v1alpha1.StopUser
	case last == nil || last.Outcome == v1alpha1.RunRetried:
		return e.startAttempt()
	case IsRerunRequested(e.observation.Session, &e.status):
		e.status.Run++
		e.status.RerunID = e.spec.Rerun.ID
		e.status.Retries, e.status.Disruptions = 0, 0
		e.status.CompletionTime, e.status.WaitingSince = nil, nil
		e.status.StoppedReason = ""
		return e.startAttempt()
	case isStopped && isStoppedByUser:
		return e.startAttempt()
	case !isStopped && ttl != nil && e.status.CompletionTime != nil:
		e.decision.DeleteSession = e.timer.HasReached(e.status.CompletionTime.Add(time.Duration(*ttl) * time.Second))
	}
	return nil
}

// IsRerunRequested reports whether the spec requests a run that the status does not record.
func IsRerunRequested(s *v1alpha1.AgenticSession, status *v1alpha1.AgenticSessionStatus) bool {
	return s.Spec.Rerun != nil && s.Spec.Rerun.ID != status.RerunID
}

// IsAtRest reports whether no attempt of a session is open, and none starts unless its spec changes.
func IsAtRest(s *v1alpha1.AgenticSession) bool {
	last := lastRun(&s.Status)
	switch {
	case s.Status.Attempt.JobName != "" || last == nil || last.Outcome == v1alpha1.RunRetried || IsRerunRequested(s, &s.Status):
		return false
	case last.Outcome != v1alpha1.RunStopped:
		return true
	}
	isStoppedByUser := s.Status.StoppedReason == v1alpha1.StopUser || s.Status.StoppedReason == ""
	return s.Spec.Suspend || !isStoppedByUser
}

// lastRun returns the record of the last attempt of the current run; nil if none has ended.
func lastRun(status *v1alpha1.AgenticSessionStatus) *v1alpha1.SessionAttempt {
	if len(status.Attempts) == 0 {
		return nil
	}
	last := &status.Attempts[len(status.Attempts)-1]
	if last.Run != status.Run {
		return nil
	}
	return last
}

// AttemptNumber returns the number of the last attempt of the current run; 0 if there was none.
func AttemptNumber(status *v1alpha1.AgenticSessionStatus) int32 {
	if status.Attempt.Run == status.Run {
		return status.Attempt.Attempt
	}
	if last := lastRun(status); last != nil {
		return last.Attempt
	}
	return 0
}

// deleteOrphanJobs deletes active Jobs that do not belong to the open attempt, which a stale decision may have created.
// It also deletes ended Jobs whose attempts are no longer recorded, so that Jobs of a session that is restarted often
// do not accumulate.
func (e *evaluation) deleteOrphanJobs() {
	for _, job := range e.observation.Jobs {
		if job.Name == e.status.Attempt.JobName || !metav1.IsControlledBy(job, e.observation.Session) {
			continue
		}
		isRecorded := slices.ContainsFunc(e.status.Attempts, func(run v1alpha1.SessionAttempt) bool { return run.JobName == job.Name })
		if isJobActive(job) || !isRecorded {
			e.deleteJob(job)
		}
	}
}

func (e *evaluation) deleteJob(job *batchv1.Job) {
	isPlanned := slices.ContainsFunc(e.decision.DeleteJobs, func(other *batchv1.Job) bool { return other.UID == job.UID })
	if job.DeletionTimestamp.IsZero() && !isPlanned {
		e.decision.DeleteJobs = append(e.decision.DeleteJobs, job)
	}
}

func isJobActive(job *batchv1.Job) bool { return decision.FindEndCondition(job) == nil }
