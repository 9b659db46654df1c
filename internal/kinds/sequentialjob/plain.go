package sequentialjob

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// maxStatusLag is how long after plain progress it is stored, at the latest.
//
// Progress is plain if the Jobs show it as well as the status: a step runs, or a step succeeded and the next one started. Every other
// outcome is stored before the next Job is created. So a Job of a later step proves that each step before it has succeeded
// (docs/decisions/0189-the-jobs-are-the-record-of-plain-progress.md).
const maxStatusLag = 50 * time.Second

// caughtUp returns the stored status with the progress that only the Jobs show. It ends before a step that requires an approval, because
// others may create Jobs with the name of a step, and with a Job that is not complete.
func caughtUp(f *facts) *v1alpha1.SequentialJobStatus {
	status := f.SequentialJob.Status.DeepCopy()
	first := slices.IndexFunc(status.Steps, func(s v1alpha1.StepStatus) bool {
		return s.Phase == v1alpha1.StepStarting || s.Phase == v1alpha1.StepRunning
	})
	if first < 0 {
		return status
	}
	var shown []v1alpha1.StepStatus
	last := 0
	for i := range status.Steps[first:] {
		step := status.Steps[first+i]
		if spec := findStepSpec(f.spec, step.Name); i > 0 && !isUnstarted(&step) || spec != nil && spec.Options().RequireApproval {
			break
		}
		if i > 0 {
			step = f.startedStep(status.Run, step.Name, 1)
		}
		job, created := findJobNamed(f.Jobs, step.JobName), f.CreatedJobs[step.JobName]
		end := &batchv1.JobCondition{Type: batchv1.JobComplete, LastTransitionTime: f.now} // if the Job was deleted
		switch {
		case job != nil && (created == "" || job.UID == created):
			step, end = recorded(step, job), decision.FindEndCondition(job)
			if isOfGeneration(job, status.ObservedGeneration) { // of a spec with the same steps before it
				last = i
			}
		case created != "" && i > 0: // the Job was deleted, or the cache does not show it yet
			step.JobUID, last = created, i
		}
		if shown = append(shown, step); end == nil || end.Type != batchv1.JobComplete {
			if !f.hasCreated(status.Run, status.Steps[first+i+1:]) {
				break
			}
			end = &batchv1.JobCondition{LastTransitionTime: f.now} // this process saw the end, and sees an older state of the Job now
		}
		shown[i].CompletionTime = end.LastTransitionTime.DeepCopy()
	}
	if last == 0 {
		return status
	}
	for i := range shown[:last] {
		shown[i].Phase, shown[i].Reason = v1alpha1.StepSucceeded, ""
	}
	shown[last].CompletionTime = nil
	copy(status.Steps[first:], shown[:last+1])
	return status
}

// hasCreated reports whether this process created the first Job of one of these steps, and no other has decided since, for example after
// a change of their order.
func (f *facts) hasCreated(run int32, steps []v1alpha1.StepStatus) bool {
	return f.HasStored && slices.ContainsFunc(steps, func(step v1alpha1.StepStatus) bool {
		return f.CreatedJobs[jobName(f.SequentialJob, run, step.Name, 1)] != ""
	})
}

// isOfGeneration reports whether a Job was created from this generation of the spec.
func isOfGeneration(job *batchv1.Job, generation int64) bool {
	return job.Annotations[v1alpha1.AnnotationGeneration] == strconv.FormatInt(generation, 10)
}

// isUnstarted reports whether a step has had no attempt in its run.
func isUnstarted(step *v1alpha1.StepStatus) bool {
	return step.Phase == v1alpha1.StepPending && step.Run == 0 && step.Reason == ""
}

// recordWithin returns how long the status of a decision may be stored later: 0 unless it differs from the stored one by plain progress only.
func recordWithin(f *facts, d *Decision) time.Duration {
	stored, others := &f.SequentialJob.Status, d.Actions
	others.CreateJob = nil
	if others.HasActions() || d.Outputs != nil || activeStep(stored.Steps) == nil || len(stored.Steps) != len(d.Status.Steps) {
		return 0
	}
	reverted := d.Status.DeepCopy()
	var oldest *metav1.Time // plain progress
	for i := range reverted.Steps {
		before, after := &stored.Steps[i], &reverted.Steps[i]
		if equality.Semantic.DeepEqual(before, after) {
			continue
		}
		if !f.isPlain(d, before, after) {
			return 0
		}
		if at := cmp.Or(after.CompletionTime, after.StartTime); oldest == nil || at.Before(oldest) {
			oldest = at
		}
		*after = *before
	}
	if oldest == nil {
		return 0
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
	return f.lagLeft(oldest)
}

// lagLeft returns how long a write may wait that became due then. After a clock that jumped back, it waits no longer than usual.
func (f *facts) lagLeft(since *metav1.Time) time.Duration {
	return max(0, min(maxStatusLag, since.Add(maxStatusLag).Sub(f.Now)))
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
	job := findJobNamed(f.Jobs, after.JobName)
	if job == nil && d.CreateJob != nil && d.CreateJob.Name == after.JobName {
		job = d.CreateJob
	}
	if job == nil || isQueueManaged(job) || job.Spec.TTLSecondsAfterFinished != nil || !isOfGeneration(job, f.SequentialJob.Generation) {
		return false
	}
	options := jobOptions(job)
	return !options.Outputs && !options.RequireApproval && options.When == ""
}
