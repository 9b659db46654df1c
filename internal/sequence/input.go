package sequence

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Input is all that a decision rests on. Decide changes nothing of it.
type Input struct {
	// SequentialJob as last read. It may be stale: the plan's status is written over
	// exactly this version or not at all.
	SequentialJob *v1alpha1.SequentialJob
	// Jobs whose controller is the SequentialJob, as last seen. They may be stale, and
	// a Job that is missing may exist.
	Jobs []*batchv1.Job
	// Created are the UIDs of the Jobs that this process made, or found by a live read,
	// by name.
	Created map[string]types.UID
	// Now is the time of the decision.
	Now time.Time
	// Answers to the questions that earlier calls with this input asked.
	Answers Answers
	// Refusal is what the API server refused when this input's plan was carried out.
	Refusal *Refusal
}

// Question is what Decide must know before it can plan. One field is set.
type Question struct {
	// JobNamed asks for a live read of the Job of this name.
	JobNamed string
	// PodsOf asks for the Job's Pods.
	PodsOf *batchv1.Job
	// AllJobs asks for a live list of the Jobs the SequentialJob controls.
	AllJobs bool
	// DryRun asks whether the API server would take these Jobs.
	DryRun []*batchv1.Job
}

// Answers hold what was found out for questions.
type Answers struct {
	// Read are the Jobs of ours that live reads found, by name; nil where there is none.
	Read map[string]*batchv1.Job
	// Pods by the UID of their Job.
	Pods map[types.UID][]corev1.Pod
	// Listed says that Input.Jobs came from a live list.
	Listed bool
	// DryRun is set once the dry run was made; it holds what was refused.
	DryRun *DryRun
}

// DryRun is the outcome of a dry run.
type DryRun struct {
	Refusals []Refusal
}

// RefusalKind says what a refusal means.
type RefusalKind string

// The kinds of refusal.
const (
	// RefusedInvalid: the object can never be made as it is.
	RefusedInvalid RefusalKind = "Invalid"
	// RefusedQuota: it can be made when a quota has room again.
	RefusedQuota RefusalKind = "Quota"
	// RefusedNameTaken: its name belongs to an object that is not ours.
	RefusedNameTaken RefusalKind = "NameTaken"
)

// Refusal is an object that the API server did not take.
type Refusal struct {
	Kind RefusalKind
	// Step the object is for, empty for the workspace and the outputs.
	Step string
	// Message of the API server.
	Message string
}

// Plan is what to do: first record Status, then the rest in the order of the fields.
type Plan struct {
	// Ask, when set, must be answered before anything is done.
	Ask *Question

	// Status to record. Nothing else of the plan may happen if that fails.
	Status v1alpha1.SequentialJobStatus
	// Changed says that Status is not what is stored.
	Changed bool
	// Deferrable says that Status tells no more than that a step is on its way, which
	// FirstStep or its Job tells too: recording it may wait.
	Deferrable bool
	// Finalizer says whether the SequentialJob is to carry its finalizer. Adding comes
	// before all else, removing after.
	Finalizer bool
	// FirstStep is the annotation to write with the finalizer; empty leaves it as it is.
	FirstStep string
	// Workspace and Outputs are to exist, if set, before Create.
	Workspace *corev1.PersistentVolumeClaim
	Outputs   *corev1.ConfigMap
	// Create is the Job to make.
	Create *batchv1.Job
	// Suspend and Resume are Jobs to hold and to let go on.
	Suspend, Resume *batchv1.Job
	// Delete are Jobs to delete in the foreground, so that they are gone only when
	// their Pods are.
	Delete []*batchv1.Job
	// Terminated says that nothing of a deleted SequentialJob runs any more.
	Terminated bool
	// Expired says that the SequentialJob's time to live is over: delete it.
	Expired bool
	// RequeueAfter is when to decide again if nothing happens before; 0 is never.
	RequeueAfter time.Duration
}

// Acts reports whether the plan changes anything but the status.
func (p *Plan) Acts() bool {
	return p.Create != nil || p.Suspend != nil || p.Resume != nil || len(p.Delete) > 0 || p.Expired
}
