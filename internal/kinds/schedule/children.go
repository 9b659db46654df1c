package schedule

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// RunOfSequentialJob returns what a Schedule needs to know of a SequentialJob that it started.
func RunOfSequentialJob(sj *v1alpha1.SequentialJob) Run {
	run := newRun(sj, sj.Status.CompletionTime, sj.Status.Phase == v1alpha1.PhaseCompleted)
	run.Failure = sj.Status.Reason
	run.IsArchiving = sj.Status.Archive != nil && sj.Status.Archive.State == v1alpha1.ArchiveArchiving
	return run
}

// RunOfSession returns what a Schedule needs to know of an AgenticSession that it started. A stopped session has ended:
// only a user can continue it.
func RunOfSession(s *v1alpha1.AgenticSession) Run {
	completed := s.Status.CompletionTime
	switch s.Status.Phase {
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed:
	case v1alpha1.SessionStopped:
		if completed == nil {
			completed = s.Status.StopTime
		}
		if completed == nil {
			completed = &s.CreationTimestamp
		}
	default:
		completed = nil
	}
	run := newRun(s, completed, s.Status.Phase == v1alpha1.SessionCompleted)
	run.Failure = string(s.Status.Phase)
	for _, condition := range s.Status.Conditions {
		if condition.Type == v1alpha1.ConditionReady && condition.Reason != "" {
			run.Failure = condition.Reason
		}
	}
	return run
}

// newRun returns a run that ended if completed is set.
func newRun(object decision.Object, completed *metav1.Time, succeeded bool) Run {
	run := Run{
		Name: object.GetName(), UID: object.GetUID(), CreationTime: object.GetCreationTimestamp().Time,
		IsDeleted: object.GetDeletionTimestamp() != nil, Object: object,
	}
	if due, err := time.Parse(time.RFC3339, object.GetAnnotations()[v1alpha1.AnnotationScheduledTime]); err == nil {
		run.ScheduledTime = due.UTC()
	}
	if completed != nil {
		run.IsFinished, run.HasSucceeded, run.CompletionTime = true, succeeded, completed.Time
	}
	return run
}
