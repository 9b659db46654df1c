package sequentialjob

import (
	"cmp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// IsManaged reports whether this operator reconciles the object.
func IsManaged(sj *v1alpha1.SequentialJob) bool {
	return sj.Spec.ManagedBy == nil || *sj.Spec.ManagedBy == v1alpha1.SequentialJobManager
}

// Decide decides what a SequentialJob does next.
func Decide(observation Observation) Decision {
	f := newFacts(observation)
	switch {
	case !IsManaged(f.SequentialJob):
		return Decision{Status: f.SequentialJob.Status}
	case !f.SequentialJob.DeletionTimestamp.IsZero():
		return decideDeletion(f)
	}
	r := newRun(f)
	p := advance(f, &r)
	a := archiveLogs(f, &p.status)
	if question := cmp.Or(p.question, a.question); question != nil {
		return Decision{Question: question, Status: f.SequentialJob.Status}
	}
	return report(f, &p, &a)
}

// facts are the observation, sorted. No stage changes them.
type facts struct {
	// Observation without the Jobs that archive logs, and without the refusal of such a Job, so that no stage takes them for Jobs of steps.
	Observation
	archiveJobs    []*batchv1.Job
	archiveRefusal *decision.Refusal
	spec           *v1alpha1.SequentialJobSpec
	// now is the time of the decision in the precision of the API.
	now metav1.Time
}

func newFacts(observation Observation) *facts {
	sj, archive := observation.SequentialJob, observation.SequentialJob.Status.Archive
	f := &facts{Observation: observation, spec: &sj.Spec, now: metav1.NewTime(observation.Now.Truncate(time.Second))}
	f.Jobs = make([]*batchv1.Job, 0, len(observation.Jobs))
	for _, job := range observation.Jobs {
		if isArchiveJob(sj, job) {
			f.archiveJobs = append(f.archiveJobs, job)
			continue
		}
		f.Jobs = append(f.Jobs, job)
	}
	if f.Refusal != nil && archive != nil && f.Refusal.Name == archiveJobName(sj, archive.Run) {
		f.archiveRefusal, f.Refusal = f.Refusal, nil
	}
	return f
}

// isArchiveJob reports whether an owned Job archives logs, by its name: other clients can change its labels.
func isArchiveJob(sj *v1alpha1.SequentialJob, job *batchv1.Job) bool {
	run, known := runOf(job)
	return known && strings.Contains(job.Name, "-"+archivePart+"-") && job.Name == archiveJobName(sj, run)
}

// with returns the SequentialJob with another status.
func (f *facts) with(status *v1alpha1.SequentialJobStatus) *v1alpha1.SequentialJob {
	sj := *f.SequentialJob
	sj.Status = *status
	return &sj
}

func (f *facts) setCondition(status *v1alpha1.SequentialJobStatus, conditionType string, state decision.State) {
	decision.SetState(&status.Conditions, f.SequentialJob.Generation, f.now, conditionType, state)
}

// notes are what a stage adds to the decision besides its own value.
type notes struct {
	// question that must be answered before the stage can decide; nil for none.
	question *Question
	events   []decision.Event
	// timer is when the stage would decide otherwise without a change of the observation.
	timer decision.Timer
}

func (f *facts) newNotes() notes { return notes{timer: decision.Timer{Now: f.Now}} }

// and returns the notes of two stages together.
func (n notes) and(others notes) notes {
	n.question = cmp.Or(n.question, others.question)
	n.events = slices.Concat(n.events, others.events)
	n.timer.RequeueAfter = decision.Earliest(n.timer.RequeueAfter, others.timer.RequeueAfter)
	return n
}

// decideDeletion deletes the running Jobs of a SequentialJob that is being deleted. The finalizer is removed once a
// live list shows that no Job runs; the garbage collector deletes the other objects.
func decideDeletion(f *facts) Decision {
	d, finalizers := Decision{Status: *f.SequentialJob.Status.DeepCopy()}, f.SequentialJob.Finalizers
	switch {
	case !slices.Contains(finalizers, v1alpha1.SequentialJobFinalizer), slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return d // with OrphanDependents the user keeps the Jobs
	case !f.Answers.HasAllJobs:
		d.Question = &Question{AllJobs: true}
		return d
	}
	for _, job := range f.Jobs {
		if !IsTerminal(job) {
			d.NeedsFinalizer = true
			d.DeleteJobs = append(d.DeleteJobs, job)
		}
	}
	if !d.NeedsFinalizer {
		d.Events = []decision.Event{decision.NormalEvent(v1alpha1.EventTerminated, actionRun, "The SequentialJob is being deleted, and none of its Jobs is running any more")}
		return d
	}
	d.Status.Phase = v1alpha1.PhaseTerminating
	f.setCondition(&d.Status, v1alpha1.ConditionProgressing, decision.False(
		v1alpha1.ReasonTerminating, "the running step is being stopped because the SequentialJob is being deleted"))
	return f.finish(d)
}

// finish completes a decision with what follows from the stored status.
func (f *facts) finish(d Decision) Decision {
	stored := &f.SequentialJob.Status
	d.StatusChanged = !equality.Semantic.DeepEqual(stored, &d.Status)
	d.Events = append(statusEvents(stored, &d.Status), d.Events...)
	d.DeleteJobs = slices.DeleteFunc(d.DeleteJobs, func(job *batchv1.Job) bool { return !job.DeletionTimestamp.IsZero() })
	return d
}
