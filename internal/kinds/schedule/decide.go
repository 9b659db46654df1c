package schedule

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// maxRequeue is the longest wait until the next decision: timers do not notice that the clock was set.
	maxRequeue = time.Minute
	// minRefusedRetry and maxRefusedRetry bound the wait before a refused run is tried again. The wait is as long as the run is
	// late.
	minRefusedRetry = time.Second
	maxRefusedRetry = time.Minute
	// maxActiveRuns is the number of active runs that the status lists.
	maxActiveRuns = 50
)

// Decide decides what a Schedule does next.
func Decide(observation Observation) Decision {
	if !observation.Schedule.DeletionTimestamp.IsZero() {
		return Decision{Status: observation.Schedule.Status} // the garbage collector deletes the runs
	}
	f := newFacts(observation)
	t := decideTimes(f)
	if t.question != "" {
		return Decision{Question: t.question, Status: *f.stored}
	}
	p := planRuns(f, t)
	r := newReport(f, t, p)
	return Decision{
		Status:         r.status,
		StatusChanged:  !equality.Semantic.DeepEqual(f.stored, &r.status),
		Events:         r.events,
		Missed:         t.missed,
		Finished:       r.finished,
		Started:        t.started,
		DeleteRuns:     p.deleteRuns,
		CreateRun:      p.createRun,
		IsFirstAttempt: t.isFirstAttempt,
		RequeueAfter:   r.requeueAfter,
	}
}

// plan is what is created and deleted.
type plan struct {
	createRun *v1alpha1.ScheduledRun
	// deleteRuns are the replaced runs, and then the oldest finished runs beyond the limits of the history.
	deleteRuns []Run
}

func planRuns(f *facts, t *times) plan {
	p := plan{createRun: t.create, deleteRuns: t.replaced}
	succeeded, failed := ptr.Deref(f.spec.SuccessfulRunsHistoryLimit, 3), ptr.Deref(f.spec.FailedRunsHistoryLimit, 1)
	for _, run := range slices.Backward(f.Runs) {
		left := &failed
		if run.HasSucceeded {
			left = &succeeded
		}
		switch {
		case !run.IsFinished || run.IsDeleted:
		case *left > 0:
			*left--
		case run.IsArchiving: // its logs would be lost
		default:
			p.deleteRuns = append(p.deleteRuns, run)
		}
	}
	return p
}
