package sequentialjob

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// deleteOldJobs deletes the oldest Jobs of ended steps beyond spec.jobHistoryLimit.
func (e *evaluation) deleteOldJobs() {
	if e.spec.JobHistoryLimit == nil {
		return
	}
	current := e.current()
	recorded := slices.DeleteFunc(slices.Clone(e.Jobs), func(job *batchv1.Job) bool {
		return !job.DeletionTimestamp.IsZero() || !IsTerminal(job) || !isOutcomeRecorded(current, job) || e.keepsForArchive(job)
	})
	surplus := len(recorded) - int(*e.spec.JobHistoryLimit)
	if surplus <= 0 {
		return
	}
	slices.SortFunc(recorded, func(a, b *batchv1.Job) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, job := range recorded[:surplus] {
		e.deleteJob(job)
	}
}

// isOutcomeRecorded reports whether an ended Job is no longer read: the status has its outcome, or it belongs to an
// earlier run or an earlier attempt.
func isOutcomeRecorded(sj *v1alpha1.SequentialJob, job *batchv1.Job) bool {
	status := &sj.Status
	for i := range status.Steps {
		step := &status.Steps[i]
		if step.JobUID == job.UID {
			return !isActive(step.Phase) && (!canStart(step.Phase) || step.Phase == v1alpha1.StepRetrying)
		}
		for attempt := int32(1); attempt < step.Attempt && step.Run == status.Run; attempt++ {
			if job.Name == jobName(sj, step.Run, step.Name, attempt) {
				return true
			}
		}
	}
	run, err := strconv.Atoi(job.Annotations[v1alpha1.AnnotationRun])
	return err == nil && run < int(status.Run)
}

// explainQuota adds to the message about an exhausted quota of Jobs how many finished Jobs of this SequentialJob count.
func (e *evaluation) explainQuota() {
	if e.blockedBy == nil || e.blockedBy.Class != decision.QuotaExceeded || !strings.Contains(e.blockedBy.Message, "jobs.batch") {
		return
	}
	finished := 0
	for _, job := range e.Jobs {
		if IsTerminal(job) {
			finished++
		}
	}
	if finished == 0 {
		return
	}
	explained := *e.blockedBy
	explained.Message = fmt.Sprintf("%d finished Jobs of this SequentialJob count too: set spec.jobHistoryLimit; %s", finished, explained.Message)
	e.blockedBy = &explained
}
