package sequentialjob

import (
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// maxStatusLag is how long after plain progress it is stored, at the latest.
//
// Progress is plain if the Jobs show it as well as the status: a step runs, or a step succeeded and the next one started. Every other
// outcome is stored before the next Job is created. So a Job of a later step proves that each step before it has succeeded
// (docs/decisions/0189-the-jobs-are-the-record-of-plain-progress.md).
const maxStatusLag = 50 * time.Second

// caughtUp returns the stored status with the progress that only the Jobs show.
func caughtUp(f *facts) *v1alpha1.SequentialJobStatus {
	status := f.SequentialJob.Status.DeepCopy()
	jobs, first, last := make([]*batchv1.Job, len(status.Steps)), -1, -1
	for i := range status.Steps {
		step := &status.Steps[i]
		if first < 0 && (step.Phase == v1alpha1.StepStarting || step.Phase == v1alpha1.StepRunning) {
			first, jobs[i] = i, findJobOf(f, step.JobName)
		}
		if first < 0 || !isUnstarted(step) {
			continue
		}
		jobs[i] = findJobOf(f, jobName(f.SequentialJob, status.Run, step.Name, 1))
		if jobs[i] != nil && jobs[i].Annotations[v1alpha1.AnnotationGeneration] == strconv.FormatInt(status.ObservedGeneration, 10) {
			last = i // the Job is of a spec with the same steps before it
		}
	}
	for i := first; i >= 0 && i <= last; i++ {
		step, job := &status.Steps[i], jobs[i]
		if i > first {
			*step = f.startedStep(status.Run, step.Name, 1)
		}
		if job != nil {
			*step = recorded(*step, job)
		}
		if i == last {
			break
		}
		step.Phase, step.Reason, step.CompletionTime = v1alpha1.StepSucceeded, "", f.now.DeepCopy()
		if job != nil && IsTerminal(job) {
			step.CompletionTime = decision.FindEndCondition(job).LastTransitionTime.DeepCopy()
		}
	}
	return status
}

func findJobOf(f *facts, name string) *batchv1.Job {
	if at := slices.IndexFunc(f.Jobs, func(job *batchv1.Job) bool { return job.Name == name }); at >= 0 {
		return f.Jobs[at]
	}
	return nil
}

// isUnstarted reports whether a step has had no attempt in its run.
func isUnstarted(step *v1alpha1.StepStatus) bool {
	return step.Phase == v1alpha1.StepPending && step.Run == 0 && step.Reason == ""
}

// recordWithin returns how long the status of a decision may be stored later: 0 unless it differs from the stored one by plain progress only.
func recordWithin(f *facts, d *Decision) time.Duration {
	stored, reverted, within := &f.SequentialJob.Status, d.Status.DeepCopy(), maxStatusLag
	others := Decision{Actions: d.Actions}
	others.CreateJob = nil
	if others.HasActions() || d.Outputs != nil || len(stored.Steps) != len(reverted.Steps) {
		return 0
	}
	for i := range reverted.Steps {
		before, after := &stored.Steps[i], &reverted.Steps[i]
		if equality.Semantic.DeepEqual(before, after) {
			continue
		}
		if !f.isPlain(d, before, after) {
			return 0
		}
		since := after.StartTime
		if after.CompletionTime != nil {
			since = after.CompletionTime
		}
		if since != nil {
			within = min(within, since.Add(maxStatusLag).Sub(f.Now))
		}
		*after = *before
	}
	reverted.State, reverted.Progress = stored.State, stored.Progress
	for i := range reverted.Conditions { // the messages name the step
		c := &reverted.Conditions[i]
		if earlier := meta.FindStatusCondition(stored.Conditions, c.Type); earlier != nil && earlier.Status == c.Status && earlier.Reason == c.Reason {
			*c = *earlier
		}
	}
	if stored.Phase == v1alpha1.PhasePending && reverted.Phase == v1alpha1.PhaseRunning { // the first step
		reverted.Phase, reverted.Conditions = stored.Phase, stored.Conditions
	}
	if !equality.Semantic.DeepEqual(stored, reverted) {
		return 0
	}
	return max(within, 0)
}

// isPlain reports whether the change of a step is plain progress. Without HasStored, another process may have decided since.
func (f *facts) isPlain(d *Decision, before, after *v1alpha1.StepStatus) bool {
	isActive := (before.Phase == v1alpha1.StepStarting || before.Phase == v1alpha1.StepRunning) && before.Message == ""
	isExpected := after.Message == "" && after.Output == "" && after.ApprovedBy == before.ApprovedBy && after.FailedPods == before.FailedPods &&
		after.Attempt == max(before.Attempt, 1)
	switch {
	case !isExpected || !isActive && !isUnstarted(before):
		return false
	case isActive && after.Phase == v1alpha1.StepRunning:
		return true
	case after.Phase != v1alpha1.StepStarting && after.Phase != v1alpha1.StepRunning && after.Phase != v1alpha1.StepSucceeded:
		return false
	case !f.HasStored || f.spec.Workspace != nil || f.spec.Archive != nil:
		return false
	}
	job := findJobOf(f, after.JobName)
	if job == nil && d.CreateJob != nil && d.CreateJob.Name == after.JobName {
		job = d.CreateJob
	}
	if job == nil || isQueueManaged(job) || job.Spec.TTLSecondsAfterFinished != nil {
		return false
	}
	options := jobOptions(job)
	return !options.Outputs && !options.RequireApproval && options.When == ""
}
