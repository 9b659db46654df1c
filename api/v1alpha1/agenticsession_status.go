package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AgenticSessionStatus is what was seen of the session's Job, and how its runs ended.
// Everything else in it is derived anew each time.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.startTime) || has(self.startTime)",message="startTime cannot be taken back"
type AgenticSessionStatus struct {
	// phase sums the session up in a word.
	// +optional
	Phase SessionPhase `json:"phase,omitempty"`

	// conditions: Ready, Accepted, DependenciesReady, NetworkRestricted, JobCreated,
	// PodScheduled, RunnerStarted, Completed; and, when there is something to tell,
	// StopStuck and ResultValid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation this status was derived from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// run is the one that the session is at, as runRequest counts them.
	// +optional
	Run int32 `json:"run,omitempty"`
	// attempt at that run: each has a Job of its own.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// retries of that run after its runner failed.
	// +optional
	Retries int32 `json:"retries,omitempty"`
	// disruptions after which that run was tried again.
	// +optional
	Disruptions int32 `json:"disruptions,omitempty"`

	// job of the attempt, from before it is made until its outcome is in runs.
	// +optional
	Job string `json:"job,omitempty"`
	// jobUID is that Job's UID, once it was seen.
	// +optional
	JobUID types.UID `json:"jobUID,omitempty"`
	// jobStartTime is when that Job started: from then on its time counts.
	// +optional
	JobStartTime *metav1.Time `json:"jobStartTime,omitempty"`
	// startedTime is when its runner started, or was ready if the session is interactive.
	// +optional
	RunnerStartTime *metav1.Time `json:"runnerStartTime,omitempty"`
	// stopTime is when that Job was told to stop.
	// +optional
	StopTime *metav1.Time `json:"stopTime,omitempty"`

	// waitingTime is since when the session waits for something that is missing.
	// +optional
	WaitingSince *metav1.Time `json:"waitingSince,omitempty"`

	// startTime is when a runner of the session first started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is when the session completed or failed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// lastActivityTime is when the runner last renewed its Lease.
	// +optional
	LastActivityTime *metav1.Time `json:"lastActivityTime,omitempty"`
	// stoppedReason is why the session is or was stopped: User, Inactivity or RunFinished.
	// +optional
	StoppedReason StopReason `json:"stoppedReason,omitempty"`

	// activeSeconds is how long the attempts in runs, and those before, have run.
	// +optional
	ActiveSeconds int64 `json:"activeSeconds,omitempty"`
	// runs are how the last attempts ended, the oldest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Runs []SessionRun `json:"runs,omitempty"`

	// result is what the runner left last.
	// +optional
	Result *SessionResult `json:"result,omitempty"`
	// totalCostUSD of all runs that told theirs.
	// +optional
	TotalCostUSD *Number `json:"totalCostUSD,omitempty"`
	// sdkSessionId is by which the runner can take the session up again.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	SDKSessionID string `json:"sdkSessionId,omitempty"`

	// inputs is the Secret with what the last Job was given.
	// +optional
	Inputs string `json:"inputs,omitempty"`
	// workspaceClaim is the PersistentVolumeClaim of the workspace.
	// +optional
	WorkspaceClaim string `json:"workspaceClaim,omitempty"`
	// service that an interactive session is reached through.
	// +optional
	Service string `json:"service,omitempty"`
}

// SessionRun is how an attempt at a run ended.
type SessionRun struct {
	// run it was an attempt at.
	Run int32 `json:"run"`
	// attempt at the run.
	Attempt int32 `json:"attempt"`
	// job of the attempt.
	// +optional
	Job string `json:"job,omitempty"`
	// start of its Job; left out if it never was.
	// +optional
	Start *metav1.Time `json:"start,omitempty"`
	// end of it.
	// +optional
	End *metav1.Time `json:"end,omitempty"`
	// exitCode of the runner, if it is known.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// outcome of the attempt.
	Outcome RunOutcome `json:"outcome"`
	// reason of the outcome, in CamelCase.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message for people, at most 256 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// costUSD of the attempt, as the runner tells it.
	// +optional
	CostUSD *Number `json:"costUSD,omitempty"`
}

// SessionResult is what a runner leaves as its termination message.
type SessionResult struct {
	// run it is of.
	Run int32 `json:"run"`
	// attempt at that run.
	Attempt int32 `json:"attempt"`
	// summary of what was done.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Summary string `json:"summary,omitempty"`
	// usage, as the runner counts it.
	// +optional
	Usage *apiextensionsv1.JSON `json:"usage,omitempty"`
	// costUSD of the attempt.
	// +optional
	CostUSD *Number `json:"costUSD,omitempty"`
	// sdkSessionId is by which the runner can take the session up again.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	SDKSessionID string `json:"sdkSessionId,omitempty"`
}

// SessionPhase sums a session up.
// +kubebuilder:validation:Enum=Pending;Creating;Running;Stopping;Stopped;Completed;Failed
type SessionPhase string

// The phases of a session.
const (
	// SessionPending: it has no Job.
	SessionPending SessionPhase = "Pending"
	// SessionCreating: it has one whose runner has not started.
	SessionCreating SessionPhase = "Creating"
	// SessionRunning: its runner runs, and is ready if it is interactive.
	SessionRunning SessionPhase = "Running"
	// SessionStopping: its Job is being ended.
	SessionStopping SessionPhase = "Stopping"
	// SessionStopped: its Job is gone, and it can go on.
	SessionStopped SessionPhase = "Stopped"
	// SessionCompleted: its runner has done its work.
	SessionCompleted SessionPhase = "Completed"
	// SessionFailed: it has not.
	SessionFailed SessionPhase = "Failed"
)

// RunOutcome is how an attempt ended.
// +kubebuilder:validation:Enum=Completed;Failed;Retried;Stopped
type RunOutcome string

// The outcomes of an attempt.
const (
	RunCompleted RunOutcome = "Completed"
	RunFailed    RunOutcome = "Failed"
	// RunRetried: it failed, and the run is tried again.
	RunRetried RunOutcome = "Retried"
	RunStopped RunOutcome = "Stopped"
)

// StopReason is why a session is stopped.
// +kubebuilder:validation:Enum=User;Inactivity;RunFinished
type StopReason string

// The reasons to stop.
const (
	// StopUser: by operatingMode.
	StopUser StopReason = "User"
	// StopInactivity: its runner was idle for too long.
	StopInactivity StopReason = "Inactivity"
	// StopRunFinished: its runner said that it has finished.
	StopRunFinished StopReason = "RunFinished"
)

// Condition types of an AgenticSession. It has the one named Ready too: it is True while
// its runner runs, and after it has completed.
const (
	// ConditionAccepted is False when the SessionRunner does not allow what is asked for.
	ConditionAccepted = "Accepted"
	// ConditionDependenciesReady is False while something is missing that the session needs.
	ConditionDependenciesReady = "DependenciesReady"
	// ConditionNetworkRestricted is True when the NetworkPolicy is as it has to be.
	ConditionNetworkRestricted = "NetworkRestricted"
	// ConditionJobCreated is True when the session has a Job.
	ConditionJobCreated = "JobCreated"
	// ConditionPodScheduled is True when its Pod has a node.
	ConditionPodScheduled = "PodScheduled"
	// ConditionRunnerStarted is True when the runner's container has started.
	ConditionRunnerStarted = "RunnerStarted"
	// ConditionCompleted is True when the session has completed.
	ConditionCompleted = "Completed"
	// ConditionStopStuck is True when a Pod is still there 30 s after it had to be gone.
	ConditionStopStuck = "StopStuck"
	// ConditionResultValid is False when the runner left a result that cannot be read.
	ConditionResultValid = "ResultValid"
)

// Reasons of an AgenticSession's conditions and runs.
const (
	ReasonNotAllowed             = "NotAllowed"
	ReasonUnknown                = "Unknown"
	ReasonRunnerNotFound         = "SessionRunnerNotFound"
	ReasonParentNotFound         = "ParentNotFound"
	ReasonParentNotFinished      = "ParentNotFinished"
	ReasonParentOwnedByOtherUser = "ParentOwnedByOtherUser"
	ReasonParentHasNoWorkspace   = "ParentHasNoWorkspace"
	ReasonWorkspaceInUse         = "WorkspaceInUse"
	ReasonWorkspaceNotFound      = "WorkspaceNotFound"
	ReasonChildRefused           = "ChildRefused"
	ReasonPreviousJobRunning     = "PreviousJobRunning"
	ReasonDependenciesReady      = "DependenciesReady"
	ReasonNetworkPolicyApplied   = "NetworkPolicyApplied"
	ReasonNetworkPolicyNotFound  = "NetworkPolicyNotFound"
	ReasonNetworkPolicyDiffers   = "NetworkPolicyDiffers"
	ReasonJobCreated             = "JobCreated"
	ReasonJobNotCreated          = "JobNotCreated"
	ReasonPodNotCreated          = "PodNotCreated"
	ReasonUnscheduled            = "Unscheduled"
	ReasonScheduled              = "Scheduled"
	ReasonRunnerStarted          = "RunnerStarted"
	ReasonRunnerNotStarted       = "RunnerNotStarted"
	ReasonStopping               = "Stopping"
	ReasonStopped                = "Stopped"
	ReasonCreating               = "Creating"
	ReasonRetrying               = "Retrying"
	ReasonGracePeriodExceeded    = "GracePeriodExceeded"
	ReasonPodTerminated          = "PodTerminated"
	ReasonResultParsed           = "ResultParsed"
	ReasonResultMalformed        = "ResultMalformed"

	ReasonExitedWithError = "ExitedWithError"
	ReasonOOMKilled       = "OOMKilled"
	ReasonEvicted         = "Evicted"
	ReasonPodLost         = "PodLost"
	ReasonPodRejected     = "PodRejected"
	ReasonConfigError     = "ConfigError"
)

// Reasons of events on an AgenticSession, besides Completed and Failed.
const (
	EventJobCreated        = "JobCreated"
	EventRunning           = "Running"
	EventStopping          = "Stopping"
	EventStopped           = "Stopped"
	EventDeadlineExceeded  = "DeadlineExceeded"
	EventInactivityTimeout = "InactivityTimeout"
	EventRetrying          = "Retrying"
	EventPodRejected       = "PodRejected"
	EventNameTaken         = "NameTaken"
)
