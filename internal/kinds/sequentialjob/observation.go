package sequentialjob

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// Observation is the input of a decision. Decide does not change it.
type Observation struct {
	// SequentialJob as last read. It may be stale: the decision's status is written only over this version.
	SequentialJob *v1alpha1.SequentialJob
	// Jobs whose controller is the SequentialJob, as last read. The cache may be stale: other Jobs may exist.
	Jobs []*batchv1.Job
	// Pods of these Jobs that have not ended, as last read.
	Pods []*corev1.Pod
	// Evidence is what their Pods have shown, by the UID of the Job. It is needed for Jobs that NeedsEvidence reports.
	Evidence map[types.UID]Evidence
	// CreatedJobs are the UIDs, by name, of the Jobs that this process created or found by a
	// live read.
	CreatedJobs map[string]types.UID
	// HasStored is true if this process has written this version of the SequentialJob, knowing all of its Jobs: no other process has decided
	// about it since.
	HasStored bool
	// Policies that select the SequentialJob. They limit the images of steps.
	Policies policy.Selection
	// Now is the time of the decision.
	Now time.Time
	// Failure is why reconciliations have failed for several seconds; empty if they have not.
	Failure string
	// ArchiveImage is the image of Jobs that archive logs, empty if unknown.
	ArchiveImage string
	// Answers to the questions of earlier decisions on this observation.
	Answers Answers
	// Refusal is the object that the API server refused when the last decision on this observation was executed, or
	// nil.
	Refusal *decision.Refusal
}

// KnowsJobs reports whether the observation has all Jobs that another process may have created without storing their steps.
func (o *Observation) KnowsJobs() bool {
	return o.HasStored || o.Answers.HasAllJobs || activeStep(o.SequentialJob.Status.Steps) == nil
}

// AnswerAllJobs answers Question.AllJobs. Jobs that were deleted after their end are still observed if the next decision depends on them.
func (o *Observation) AnswerAllJobs(live []*batchv1.Job) {
	for _, job := range o.Jobs {
		live = AddEnded(o.SequentialJob, live, o.CreatedJobs, job)
	}
	o.Jobs, o.Answers.HasAllJobs = live, true
}

// Question is a fact that Decide needs. Exactly one field is set, besides FirstFollows.
type Question struct {
	// JobNamed requests a live read of the Job with this name.
	JobNamed string
	// PodsOf requests the Pods of a Job, or of a deleted Job, which has no version.
	PodsOf *batchv1.Job
	// WarningsOf requests the newest event of type Warning for the Job or Pod with this UID.
	WarningsOf types.UID
	// AllJobs requests a live list of the Jobs that the SequentialJob controls.
	AllJobs bool
	// Claim requests a live read of the metadata of the PersistentVolumeClaim with this name.
	Claim string
	// DryRun requests a dry-run creation of these Jobs and of a Pod of each.
	DryRun []*batchv1.Job
	// ApprovalPolicies requests whether the admission policies are enforced that protect approvals.
	ApprovalPolicies bool
	// FirstFollows is true if the first Job of DryRun is created as soon as all are accepted: its labels and
	// annotations need no dry run.
	FirstFollows bool
}

// Answers are the answers to questions.
type Answers struct {
	// JobsByName are the results of live reads; nil if no owned Job has the name.
	JobsByName map[string]*batchv1.Job
	// PodsByJob are the Pods by the UID of their Job.
	PodsByJob map[types.UID][]corev1.Pod
	// Warnings are the messages of events by the UID of their object; empty without an event.
	Warnings map[types.UID]string
	// Claims that live reads returned, by name; nil if the claim does not exist.
	Claims map[string]*metav1.PartialObjectMetadata
	// HasAllJobs is true if Observation.Jobs came from a live list.
	HasAllJobs bool
	// UnprotectedApprovals is why nothing proves the author of an approval, empty if an admission policy does; nil if unknown.
	UnprotectedApprovals *string
	// DryRun is the result of the dry run; nil if none was made.
	DryRun *DryRunResult
}

// DryRunResult is the result of a dry run.
type DryRunResult struct {
	Refusals []decision.Refusal
}

// Decision has the next actions: record Status, emit Events, then act.
type Decision struct {
	// Question, if set, must be answered first. The other fields are then not valid.
	Question *Question

	// Status to record. If the write fails, no action may follow.
	Status v1alpha1.SequentialJobStatus
	// StatusChanged is true if Status differs from the stored status.
	StatusChanged bool
	// RecordWithin is how long Status may be stored later, although the actions follow now; 0 if it must be stored first.
	RecordWithin time.Duration
	// Events to emit after the status is stored.
	Events []decision.Event

	Actions
	// RequeueAfter is the time until the next decision if nothing happens before; 0 is never.
	RequeueAfter time.Duration
}

// Actions are what to do with the SequentialJob and its objects, in the order of the fields.
type Actions struct {
	// NeedsFinalizer is true if the SequentialJob must have its finalizer. It is added before
	// all other actions, and removed after them.
	NeedsFinalizer bool
	// ReleaseWithin is how long a finalizer that is not needed may be removed later; 0 if it must be removed now.
	ReleaseWithin time.Duration
	// DeleteJobs are Jobs to delete in the foreground, so that each exists until its Pods are
	// deleted.
	DeleteJobs []*batchv1.Job
	// Workspace is the claim to create; nil for none. A later decision records the claim's UID and creates the Job.
	Workspace *corev1.PersistentVolumeClaim
	// Outputs is the ConfigMap that CreateJob needs; nil for none.
	Outputs *corev1.ConfigMap
	// CreateJob is the Job to create; nil for none.
	CreateJob *batchv1.Job
	// CreateArchive is the Job to create that archives logs; nil for none.
	CreateArchive *batchv1.Job
	// SuspendJob and ResumeJob are Jobs to suspend and to resume; nil for none.
	SuspendJob, ResumeJob *batchv1.Job
	// DeleteExpired is true if the SequentialJob's time to live has passed.
	DeleteExpired bool
}

// HasActions reports whether a decision changes anything but the status and the finalizer.
func (a *Actions) HasActions() bool {
	return a.Workspace != nil || a.CreateJob != nil || a.CreateArchive != nil || a.SuspendJob != nil || a.ResumeJob != nil || len(a.DeleteJobs) > 0 || a.DeleteExpired
}
