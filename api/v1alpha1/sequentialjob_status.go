package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SequentialJobStatus is the observed state of a SequentialJob. It is derived from the Jobs of
// its steps and from the outcomes that are recorded here.
type SequentialJobStatus struct {
	ObservedStatus `json:",inline"`

	// phase summarizes the conditions.
	// +optional
	Phase SequentialJobPhase `json:"phase,omitempty"`

	// reason of the failure or of the wait.
	// +optional
	Reason string `json:"reason,omitempty"`

	RunStatus `json:",inline"`

	// deadlineExceededTime of the run.
	// +optional
	DeadlineExceededTime *metav1.Time `json:"deadlineExceededTime,omitempty"`

	// workspace is the claim.
	// +optional
	Workspace ClaimStatus `json:"workspace,omitzero"`

	// results of the current run, once it is completed.
	// +optional
	// +listType=atomic
	Results []Parameter `json:"results,omitempty"`

	// parameters of the current run.
	// +optional
	// +listType=atomic
	Parameters []Parameter `json:"parameters,omitempty"`

	// approval is what is to be approved, or what was approved last.
	// +optional
	Approval *SequenceApproval `json:"approval,omitempty"`

	// archive of the last archived run.
	// +optional
	Archive *SequenceArchiveStatus `json:"archive,omitempty"`

	// state counts steps by state.
	// +optional
	State StepCounts `json:"state,omitempty"`

	// progress of the run.
	// +optional
	Progress Progress `json:"progress,omitempty"`

	// steps of the run, in order.
	// +optional
	// +listType=atomic
	Steps []StepStatus `json:"steps,omitempty"`
}

// SequenceApproval is what an approval is for. An approval repeats it.
type SequenceApproval struct {
	// uid of the SequentialJob.
	UID types.UID `json:"uid"`
	// run of the step.
	Run int32 `json:"run"`
	// step that requires the approval.
	Step string `json:"step"`
	// hash of all that decides what the step runs.
	Hash string `json:"hash"`
}

// SequenceArchiveStatus is where the logs of a run are archived, or why they are not. Without completionTime they are being archived.
type SequenceArchiveStatus struct {
	JobAttempt    `json:",inline"`
	ArchiveResult `json:",inline"`
}

// StepCounts counts steps by state.
type StepCounts struct {
	// active steps, 0 or 1.
	// +optional
	// +kubebuilder:default=0
	Active int32 `json:"active"`
	// succeeded steps.
	// +optional
	// +kubebuilder:default=0
	Succeeded int32 `json:"succeeded"`
	// failed steps.
	// +optional
	// +kubebuilder:default=0
	Failed int32 `json:"failed"`
}

// Progress describes how far a run has progressed. Indices start at 0 and count the steps of the run.
type Progress struct {
	// currentIndex of the active or next step, or of the step that failed the run, from 0.
	// +optional
	CurrentIndex *int32 `json:"currentIndex,omitempty"`
	// currentStep at currentIndex.
	// +optional
	CurrentStep string `json:"currentStep,omitempty"`
	// completedIndices of succeeded steps.
	// +optional
	// +listType=atomic
	CompletedIndices []int32 `json:"completedIndices,omitempty"`
	// failedIndex of the step that failed the run.
	// +optional
	FailedIndex *int32 `json:"failedIndex,omitempty"`
	// failureReason of the run.
	// +optional
	FailureReason string `json:"failureReason,omitempty"`
}

// StepStatus is the state of a step.
type StepStatus struct {
	// name of the step.
	Name string `json:"name"`
	// phase of the step.
	Phase StepPhase `json:"phase"`

	// The current attempt; of a step that kept its outcome, the last attempt of an earlier run.
	JobAttempt `json:",inline"`

	// tolerated failure.
	// +optional
	Tolerated bool `json:"tolerated,omitempty"`
	// failedAttempts that were retried.
	// +optional
	FailedAttempts int32 `json:"failedAttempts,omitempty"`
	// nextAttemptTime of a retry.
	// +optional
	NextAttemptTime *metav1.Time `json:"nextAttemptTime,omitempty"`

	// firstStartTime of the first attempt that failed, if retries have a maxDuration.
	// +optional
	FirstStartTime *metav1.Time `json:"firstStartTime,omitempty"`
	// failedPods of the attempt.
	// +optional
	FailedPods int32 `json:"failedPods,omitempty"`
	// specHash of the step.
	// +optional
	SpecHash string `json:"specHash,omitempty"`
	// approvedBy is the user who approved.
	// +optional
	ApprovedBy string `json:"approvedBy,omitempty"`
	// output of the step.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Output string `json:"output,omitempty"`
}

// SequentialJobPhase summarizes a SequentialJob's conditions.
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

// StepPhase is the phase of a step.
// +kubebuilder:validation:Enum=Pending;Starting;Queued;Running;Suspending;Suspended;Interrupted;Stopping;Lost;Retrying;Succeeded;Failed;Skipped
type StepPhase string

// The phases of a step.
const (
	// The step has not started.
	StepPending StepPhase = "Pending"
	// The step has started and no Pod of it runs yet. If it has a message, something keeps its Job
	// from being created, or its Pod from running.
	StepStarting StepPhase = "Starting"
	// The step's Job is suspended by a queue such as Kueue.
	StepQueued StepPhase = "Queued"
	// A Pod of the step runs. A step that ends within about a second may skip this phase.
	StepRunning StepPhase = "Running"
	// The step's Job is being deleted because of spec.suspend; afterwards the step is Interrupted.
	StepSuspending StepPhase = "Suspending"
	// The step's Job is suspended because of spec.suspend or, with the reason JobSuspended, by
	// another client.
	StepSuspended StepPhase = "Suspended"
	// The step's Job was deleted because of spec.suspend. The next attempt starts when the run is
	// resumed.
	StepInterrupted StepPhase = "Interrupted"
	// The step's Job is being deleted for the given reason; afterwards the step is
	// Failed or, with the reason ContainerEnded, Succeeded.
	StepStopping StepPhase = "Stopping"
	// The step's Job was deleted before its outcome was recorded. The next attempt
	// starts, because of onLostJob: Rerun.
	StepLost StepPhase = "Lost"
	// The step's Job failed, and the next attempt starts at nextAttemptTime, because of step.retry.
	StepRetrying StepPhase = "Retrying"
	// The step's Job completed.
	StepSucceeded StepPhase = "Succeeded"
	// The step's Job failed, was lost, was refused, or was stopped.
	StepFailed StepPhase = "Failed"
	// The step did not run because of an earlier failure, the run's deadline, or its own expression in
	// step.when.
	StepSkipped StepPhase = "Skipped"
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
	ReasonStepDeadlineExceeded  = "StepDeadlineExceeded"
	ReasonStartDeadlineExceeded = "StartDeadlineExceeded"
	ReasonJobLost               = "JobLost"
	ReasonOutcomeUnknown        = "OutcomeUnknown"
	ReasonContainerStillRuns    = "ContainerStillRuns"
	ReasonContainerEnded        = "ContainerEnded"
	ReasonJobRejected           = "JobRejected"
	ReasonInterrupted           = "Interrupted"
	ReasonReplaced              = "Replaced"
	ReasonOutputInvalid         = "OutputInvalid"
	ReasonOutputTooLong         = "OutputTooLong"
	ReasonOutputLost            = "OutputLost"
	ReasonPreviousStepFailed    = "PreviousStepFailed"
	ReasonWhenFalse             = "WhenFalse"
	ReasonWhenInvalid           = "WhenInvalid"
	ReasonApprovalRequired      = "ApprovalRequired"

	ReasonAccepted           = "Accepted"
	ReasonInvalid            = "Invalid"
	ReasonStepInvalid        = "StepInvalid"
	ReasonStartedStepChanged = "StartedStepChanged"
	ReasonRerunInvalid       = "RerunInvalid"

	ReasonQuotaExceeded = "QuotaExceeded"
	ReasonAvailable     = "Available"

	// ReasonNameTaken is that another object has the name of the next step's Job, of the workspace or of the outputs.
	ReasonNameTaken = "NameTaken"
	// ReasonImageNotAllowed is that a Policy does not allow an image of the next step's Job, or of any step before the run starts.
	// The run waits; it does not fail.
	ReasonImageNotAllowed = "ImageNotAllowed"

	ReasonWorkspaceTerminating = "WorkspaceTerminating"
	ReasonJobSuspended         = "JobSuspended"

	ReasonArchiveImageUnknown = "ImageUnknown"
	ReasonArchiveJobFailed    = "JobFailed"

	// ReasonRequestFailed is that the operator cannot carry out its decisions, for example because it lacks a permission.
	ReasonRequestFailed = "RequestFailed"
)

// Reasons of events on a SequentialJob.
const (
	EventJobStarted           = "JobStarted"
	EventJobCompleted         = "JobCompleted"
	EventJobFailed            = "JobFailed"
	EventJobLost              = "JobLost"
	EventStepInterrupted      = "StepInterrupted"
	EventJobReplaced          = "JobReplaced"
	EventSpecChanged          = "SpecChanged"
	EventSpecRejected         = "SpecRejected"
	EventNameConflict         = "NameConflict"
	EventPolicyViolated       = "PolicyViolated"
	EventResourcesUnavailable = "ResourcesUnavailable"
	EventBlocked              = "Blocked"
	EventReconcileFailed      = "ReconcileFailed"
	EventSuspended            = "Suspended"
	EventResumed              = "Resumed"
	EventRerunStarted         = "RerunStarted"
	EventResultInvalid        = "ResultInvalid"
	EventCompleted            = "Completed"
	EventFailed               = "Failed"
	EventTerminated           = "Terminated"
	EventLogsArchived         = "LogsArchived"
	EventArchiveFailed        = "ArchiveFailed"
)
