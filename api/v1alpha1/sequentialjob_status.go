package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SequentialJobStatus is what was observed of the sequence's Jobs. Everything in it
// is derived from those Jobs and from the outcomes recorded here; nothing is counted up.
type SequentialJobStatus struct {
	// phase sums the conditions up in a word.
	// +optional
	Phase SequentialJobPhase `json:"phase,omitempty"`

	// conditions: Available, Progressing, Failed, Suspended, SpecAccepted,
	// ResourcesUnavailable, NameConflict.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation this status was derived from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// run counts the runs: 1, and one more for each rerun.
	// +optional
	Run int32 `json:"run,omitempty"`

	// rerunID is the spec.rerun.id that was last acted on.
	// +optional
	RerunID string `json:"rerunID,omitempty"`

	// startTime is when the run began or, as in batch/v1, was last resumed.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the run ended, in success or in failure.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// state counts the run's steps.
	// +optional
	State StepCounts `json:"state,omitempty"`

	// progress says how far the run has come.
	// +optional
	Progress Progress `json:"progress,omitempty"`

	// steps of the run in order, those of finally last.
	// +optional
	// +listType=map
	// +listMapKey=name
	Steps []StepStatus `json:"steps,omitempty"`
}

// StepCounts counts steps by what became of them.
type StepCounts struct {
	// active steps: one that is starting, running or being stopped; 0 or 1.
	// +optional
	// +kubebuilder:default=0
	Active int32 `json:"active"`
	// succeeded steps.
	// +optional
	// +kubebuilder:default=0
	Succeeded int32 `json:"succeeded"`
	// failed steps, those with onFailure: Continue included.
	// +optional
	// +kubebuilder:default=0
	Failed int32 `json:"failed"`
}

// Progress says how far a run has come. Indices count from 0, through containers and
// then finally.
type Progress struct {
	// currentIndex is the step that is active, or next.
	// +optional
	CurrentIndex *int32 `json:"currentIndex,omitempty"`
	// currentStep is that step's name.
	// +optional
	CurrentStep string `json:"currentStep,omitempty"`
	// completedIndices are the steps that succeeded.
	// +optional
	// +listType=set
	CompletedIndices []int32 `json:"completedIndices,omitempty"`
	// failedIndex is the first step whose failure fails the run.
	// +optional
	FailedIndex *int32 `json:"failedIndex,omitempty"`
	// failureReason is why the run fails or failed.
	// +optional
	FailureReason string `json:"failureReason,omitempty"`
	// display is "<steps succeeded>/<steps>".
	// +optional
	Display string `json:"display,omitempty"`
}

// StepStatus is what is known of one step in the current run.
type StepStatus struct {
	// name of the step.
	Name string `json:"name"`
	// finally says that the step is one of spec.finally.
	// +optional
	Finally bool `json:"finally,omitempty"`
	// phase of the step.
	Phase StepPhase `json:"phase"`
	// tolerated says that the step failed and, by its onFailure: Continue, the run
	// goes on.
	// +optional
	Tolerated bool `json:"tolerated,omitempty"`
	// attempt counts the Jobs made for the step in this run: 1, and one more each
	// time a lost or interrupted one is made again.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// run in which the step got this outcome; lower than status.run for a step that
	// kept it over a rerun.
	// +optional
	Run int32 `json:"run,omitempty"`
	// jobName is the step's Job.
	// +optional
	JobName string `json:"jobName,omitempty"`
	// jobUID is that Job's UID, once the Job was seen.
	// +optional
	JobUID types.UID `json:"jobUID,omitempty"`
	// generation of the spec the step was started with.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// specHash is a hash of the step's own entry in that spec.
	// +optional
	SpecHash string `json:"specHash,omitempty"`
	// templateHash is a hash of the Pod template the step was started with.
	// +optional
	TemplateHash string `json:"templateHash,omitempty"`
	// startTime is when the step's Job was started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// finishTime is when it ended.
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`
	// reason for the phase, in CamelCase.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message for people, at most 256 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// output is the step's termination message, when the step has outputs: true.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Output string `json:"output,omitempty"`
}

// SequentialJobPhase sums up a SequentialJob's conditions.
// +kubebuilder:validation:Enum=Pending;Running;Suspended;Completed;Failed;Terminating
type SequentialJobPhase string

// The phases of a SequentialJob.
const (
	PhasePending     SequentialJobPhase = "Pending"
	PhaseRunning     SequentialJobPhase = "Running"
	PhaseSuspended   SequentialJobPhase = "Suspended"
	PhaseCompleted   SequentialJobPhase = "Completed"
	PhaseFailed      SequentialJobPhase = "Failed"
	PhaseTerminating SequentialJobPhase = "Terminating"
)

// StepPhase is where a step stands.
// +kubebuilder:validation:Enum=Pending;Starting;Running;Suspended;Stopping;Succeeded;Failed;Skipped
type StepPhase string

// The phases of a step.
const (
	// StepPending: not begun.
	StepPending StepPhase = "Pending"
	// StepStarting: recorded as begun; its Job is being made, or is younger than 15 s.
	StepStarting StepPhase = "Starting"
	// StepRunning: its Job has been there for 15 s or more.
	StepRunning StepPhase = "Running"
	// StepSuspended: its Job is held by spec.suspend.
	StepSuspended StepPhase = "Suspended"
	// StepStopping: its Job is being ended for the reason given.
	StepStopping StepPhase = "Stopping"
	// StepSucceeded: its Job completed.
	StepSucceeded StepPhase = "Succeeded"
	// StepFailed: its Job failed, was lost, or was stopped.
	StepFailed StepPhase = "Failed"
	// StepSkipped: the run ended before it.
	StepSkipped StepPhase = "Skipped"
)

// Condition types of a SequentialJob.
const (
	// ConditionAvailable is True when the run completed.
	ConditionAvailable = "Available"
	// ConditionProgressing is True while the run goes on.
	ConditionProgressing = "Progressing"
	// ConditionFailed is True when the run failed.
	ConditionFailed = "Failed"
	// ConditionSuspended is True when spec.suspend holds the run and nothing of it runs.
	ConditionSuspended = "Suspended"
	// ConditionSpecAccepted is False when the spec, or a change of it, cannot be used.
	ConditionSpecAccepted = "SpecAccepted"
	// ConditionResourcesUnavailable is True while a quota keeps the next step's Job
	// from being made. That is waiting, not failure.
	ConditionResourcesUnavailable = "ResourcesUnavailable"
	// ConditionNameConflict is True while the name of the next step's Job, of the
	// workspace or of the outputs is taken by an object that is not ours.
	ConditionNameConflict = "NameConflict"
)

// Reasons of conditions and of step phases.
const (
	ReasonWaiting        = "Waiting"
	ReasonRunning        = "Running"
	ReasonRunningFinally = "RunningFinally"
	ReasonCompleted      = "Completed"
	ReasonSuspended      = "Suspended"
	ReasonSuspending     = "Suspending"
	ReasonNotSuspended   = "NotSuspended"
	ReasonTerminating    = "Terminating"
	ReasonNotFailed      = "NotFailed"

	ReasonStepFailed            = "StepFailed"
	ReasonFinallyFailed         = "FinallyFailed"
	ReasonDeadlineExceeded      = "DeadlineExceeded"
	ReasonStartDeadlineExceeded = "StartDeadlineExceeded"
	ReasonJobLost               = "JobLost"
	ReasonJobRejected           = "JobRejected"
	ReasonInterrupted           = "Interrupted"
	ReasonPreviousStepFailed    = "PreviousStepFailed"

	ReasonAccepted           = "Accepted"
	ReasonInvalid            = "Invalid"
	ReasonStepInvalid        = "StepInvalid"
	ReasonStartedStepChanged = "StartedStepChanged"
	ReasonRerunInvalid       = "RerunInvalid"

	ReasonQuotaExceeded = "QuotaExceeded"
	ReasonAvailable     = "Available"
	ReasonNameTaken     = "NameTaken"
	ReasonNoConflict    = "NoConflict"
)

// Reasons of events on a SequentialJob.
const (
	EventJobStarted           = "JobStarted"
	EventJobCompleted         = "JobCompleted"
	EventJobFailed            = "JobFailed"
	EventJobLost              = "JobLost"
	EventSpecChanged          = "SpecChanged"
	EventSpecRejected         = "SpecRejected"
	EventNameConflict         = "NameConflict"
	EventResourcesUnavailable = "ResourcesUnavailable"
	EventSuspended            = "Suspended"
	EventResumed              = "Resumed"
	EventRerunStarted         = "RerunStarted"
	EventCompleted            = "Completed"
	EventFailed               = "Failed"
	EventTerminated           = "Terminated"
)
