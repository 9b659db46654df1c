package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AgenticSessionStatus is the observed state of the session, and of its last attempts.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.startTime) || has(self.startTime)",message="startTime cannot be removed"
type AgenticSessionStatus struct {
	ObservedStatus `json:",inline"`
	RunStatus      `json:",inline"`

	// phase summarizes the state.
	// +optional
	Phase SessionPhase `json:"phase,omitempty"`

	// retries after failures of the runner.
	// +optional
	Retries int32 `json:"retries,omitempty"`
	// disruptions after which the run was retried.
	// +optional
	Disruptions int32 `json:"disruptions,omitempty"`

	// attempt that is open.
	// +optional
	Attempt SessionAttempt `json:"attempt,omitzero"`
	// attempts that ended, the last 10, oldest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Attempts []SessionAttempt `json:"attempts,omitempty"`

	// waitingSince is since when the session waits for something missing.
	// +optional
	WaitingSince *metav1.Time `json:"waitingSince,omitempty"`
	// queuedSince is since when other sessions or a queue delay the start.
	// +optional
	QueuedSince *metav1.Time `json:"queuedSince,omitempty"`
	// stoppedReason is User, Inactivity, RunFinished or BudgetExceeded.
	// +optional
	StoppedReason StopReason `json:"stoppedReason,omitempty"`
	// activeDuration of the ended attempts.
	// +optional
	ActiveDuration Duration `json:"activeDuration,omitzero"`

	// result is the last valid result.
	// +optional
	Result *SessionResult `json:"result,omitempty"`
	// totalCostUSD of all attempts, in US dollars.
	// +optional
	TotalCostUSD *Number `json:"totalCostUSD,omitempty"`

	// workspace is the claim.
	// +optional
	Workspace ClaimStatus `json:"workspace,omitzero"`
}

// SessionAttempt is an attempt of a run.
type SessionAttempt struct {
	JobAttempt `json:",inline"`

	// runner is the SessionRunner.
	// +optional
	Runner string `json:"runner,omitempty"`
	// inputsRef is the Secret with the inputs.
	// +optional
	InputsRef LocalReference `json:"inputsRef,omitzero"`
	// limits of the SessionRunner at creation.
	// +optional
	Limits SessionAttemptLimits `json:"limits,omitzero"`

	// activeSince is when timeout began to count. Unset while suspended.
	// +optional
	ActiveSince *metav1.Time `json:"activeSince,omitempty"`
	// runnerStartTime is when the runner started, or was ready.
	// +optional
	RunnerStartTime *metav1.Time `json:"runnerStartTime,omitempty"`
	// lastActivityTime is when a renewal of the Lease was seen.
	// +optional
	LastActivityTime *metav1.Time `json:"lastActivityTime,omitempty"`
	// leaseRenewTime is renewTime of the Lease.
	// +optional
	LeaseRenewTime *metav1.MicroTime `json:"leaseRenewTime,omitempty"`
	// egressTokenExpires is when the egress token expires.
	// +optional
	EgressTokenExpires *metav1.Time `json:"egressTokenExpires,omitempty"`
	// stopTime is when deletion was requested.
	// +optional
	StopTime *metav1.Time `json:"stopTime,omitempty"`
	// outcome of an ended attempt.
	// +optional
	Outcome RunOutcome `json:"outcome,omitempty"`
	// costUSD that was reported, in US dollars.
	// +optional
	CostUSD *Number `json:"costUSD,omitempty"`
	// costRecordTime of costUSD.
	// +optional
	CostRecordTime *metav1.Time `json:"costRecordTime,omitempty"`
}

// SessionAttemptLimits are what an attempt keeps of its SessionRunner.
type SessionAttemptLimits struct {
	RunLimits `json:",inline"`

	// activityLease is whether it has a Lease.
	// +optional
	ActivityLease bool `json:"activityLease,omitempty"`
}

// SessionResult is the result that a runner writes as its termination message.
type SessionResult struct {
	AttemptNumber `json:",inline"`

	// summary of the work.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Summary string `json:"summary,omitempty"`
	// usage as the runner counts it, such as tokens.
	// +optional
	Usage *apiextensionsv1.JSON `json:"usage,omitempty"`
	// sdkSessionID of the conversation, for the next attempt.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	SDKSessionID string `json:"sdkSessionID,omitempty"`
	// repositories are what became of repos.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Repositories []SessionRepositoryResult `json:"repositories,omitempty"`
	// transcript of the attempt.
	// +optional
	Transcript *ArchiveResult `json:"transcript,omitempty"`
}

// SessionRepositoryResult is what became of a repository.
type SessionRepositoryResult struct {
	// name of the directory.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// branch that was pushed, or is checked out.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Branch string `json:"branch,omitempty"`
	// commit that is checked out.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Commit string `json:"commit,omitempty"`
	// pushed means that all commits were pushed.
	// +optional
	Pushed bool `json:"pushed,omitempty"`
	// pullRequestURL is the URL of the pull request.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	PullRequestURL string `json:"pullRequestURL,omitempty"`
	// error is why some work was not pushed, and where it is, or why no pull request was opened.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Error string `json:"error,omitempty"`
}

// SessionPhase summarizes the state of a session.
// +kubebuilder:validation:Enum=Pending;Creating;Running;Stopping;Stopped;Completed;Failed
type SessionPhase string

// The phases of a session.
const (
	// The session has no Job.
	SessionPending SessionPhase = "Pending"
	// The session has a Job whose runner has not started.
	SessionCreating SessionPhase = "Creating"
	// The runner runs, and is ready if the session is interactive.
	SessionRunning SessionPhase = "Running"
	// The Job is being deleted.
	SessionStopping SessionPhase = "Stopping"
	// The Job is deleted, and the session can be resumed.
	SessionStopped SessionPhase = "Stopped"
	// The runner exited with code 0.
	SessionCompleted SessionPhase = "Completed"
	// The run failed and is not retried.
	SessionFailed SessionPhase = "Failed"
)

// RunOutcome is the outcome of an attempt.
// +kubebuilder:validation:Enum=Completed;Failed;Retried;Stopped
type RunOutcome string

// The outcomes of an attempt.
const (
	RunCompleted RunOutcome = "Completed"
	RunFailed    RunOutcome = "Failed"
	// The attempt failed, and its run is retried.
	RunRetried RunOutcome = "Retried"
	RunStopped RunOutcome = "Stopped"
)

// StopReason is why a session was stopped.
// +kubebuilder:validation:Enum=User;Inactivity;RunFinished;BudgetExceeded
type StopReason string

// The reasons to stop.
const (
	// The user set suspend.
	StopUser StopReason = "User"
	// The runner was idle for longer than inactivityTimeout.
	StopInactivity StopReason = "Inactivity"
	// The runner reported that its run is finished.
	StopRunFinished StopReason = "RunFinished"
	// The runner reported a cost that reaches maxCostUSD.
	StopBudgetExceeded StopReason = "BudgetExceeded"
)

// Reasons of an AgenticSession's conditions and runs.
const (
	ReasonNotAllowed                = "NotAllowed"
	ReasonUnknown                   = "Unknown"
	ReasonRunnerNotFound            = "SessionRunnerNotFound"
	ReasonParentNotFound            = "ParentNotFound"
	ReasonParentNotFinished         = "ParentNotFinished"
	ReasonParentOwnedByOtherUser    = "ParentOwnedByOtherUser"
	ReasonParentHasNoWorkspace      = "ParentHasNoWorkspace"
	ReasonWorkspaceInUse            = "WorkspaceInUse"
	ReasonWorkspaceNotFound         = "WorkspaceNotFound"
	ReasonWorkspaceLost             = "WorkspaceLost"
	ReasonServiceAccountNotFound    = "ServiceAccountNotFound"
	ReasonChildRefused              = "ChildRefused"
	ReasonQueued                    = "Queued"
	ReasonPreviousJobRunning        = "PreviousJobRunning"
	ReasonNetworkPolicyApplied      = "NetworkPolicyApplied"
	ReasonNetworkPolicyNotFound     = "NetworkPolicyNotFound"
	ReasonNetworkPolicyDiffers      = "NetworkPolicyDiffers"
	ReasonNetworkWidened            = "NetworkWidened"
	ReasonNetworkPolicyEnforced     = "NetworkPolicyEnforced"
	ReasonNetworkNotEnforced        = "NetworkNotEnforced"
	ReasonNetworkEnforcementUnknown = "NetworkEnforcementUnknown"
	ReasonNetworkCheckPending       = "NetworkCheckPending"
	ReasonEgressProxyNotReady       = "EgressProxyNotReady"
	ReasonUnprotected               = "Unprotected"
	ReasonJobNotCreated             = "JobNotCreated"
	ReasonPodNotCreated             = "PodNotCreated"
	ReasonUnscheduled               = "Unscheduled"
	ReasonScheduled                 = "Scheduled"
	ReasonRunnerStarted             = "RunnerStarted"
	ReasonRunnerNotStarted          = "RunnerNotStarted"
	ReasonRunnerReady               = "RunnerReady"
	ReasonRunnerNotReady            = "RunnerNotReady"
	ReasonStopping                  = "Stopping"
	ReasonStopped                   = "Stopped"
	ReasonCreating                  = "Creating"
	ReasonRetrying                  = "Retrying"
	ReasonGracePeriodExceeded       = "GracePeriodExceeded"
	ReasonReporting                 = "Reporting"
	ReasonActivityUnknown           = "ActivityUnknown"
	ReasonCostUnknown               = "CostUnknown"
	ReasonCostMalformed             = "CostMalformed"
	ReasonResultMalformed           = "ResultMalformed"
	ReasonPushed                    = "Pushed"
	ReasonNothingToPush             = "NothingToPush"
	ReasonNotPushedYet              = "NotPushedYet"
	ReasonPushFailed                = "PushFailed"
	ReasonPushUnknown               = "PushUnknown"

	ReasonExitedWithError = "ExitedWithError"
	ReasonOOMKilled       = "OOMKilled"
	ReasonEvicted         = "Evicted"
	ReasonPodLost         = "PodLost"
	ReasonPodDeleted      = "PodDeleted"
	ReasonPodRejected     = "PodRejected"
	ReasonConfigError     = "ConfigError"
	ReasonBudgetExceeded  = "BudgetExceeded"
)

// Reasons of an AgenticSession's events, besides Completed and Failed.
const (
	EventJobCreated        = "JobCreated"
	EventJobSuspended      = "JobSuspended"
	EventRunning           = "Running"
	EventStopping          = "Stopping"
	EventStopped           = "Stopped"
	EventDeadlineExceeded  = "DeadlineExceeded"
	EventBudgetExceeded    = "BudgetExceeded"
	EventInactivityTimeout = "InactivityTimeout"
	EventRetrying          = "Retrying"
	EventPodRejected       = "PodRejected"
	EventNameTaken         = "NameTaken"
	EventWorkspaceLost     = "WorkspaceLost"
	EventPushFailed        = "PushFailed"
)
