package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AgenticSessionStatus is the observed state of the session, and of its last attempts.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.startTime) || has(self.startTime)",message="startTime cannot be removed"
type AgenticSessionStatus struct {
	ObservedStatus `json:",inline"`

	// phase summarizes the session's state.
	// +optional
	Phase SessionPhase `json:"phase,omitempty"`

	// run is the number of the current run, from 1.
	// +optional
	Run int32 `json:"run,omitempty"`
	// rerunID is the last spec.rerun.id that was observed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	RerunID string `json:"rerunID,omitempty"`
	// retries is how often the run was retried after its runner failed.
	// +optional
	Retries int32 `json:"retries,omitempty"`
	// disruptions is how often the run was retried after a disruption.
	// +optional
	Disruptions int32 `json:"disruptions,omitempty"`

	// attempt is the open attempt.
	// +optional
	Attempt SessionAttempt `json:"attempt,omitzero"`
	// attempts are the last 10 ended attempts, oldest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Attempts []SessionAttempt `json:"attempts,omitempty"`

	// waitingSince is since when the session waits for a missing object or a correction. After
	// startupTimeout it fails.
	// +optional
	WaitingSince *metav1.Time `json:"waitingSince,omitempty"`
	// queuedSince is since when the session waits for others of its SessionRunner to end, or its Job
	// for a queue such as Kueue.
	// +optional
	QueuedSince *metav1.Time `json:"queuedSince,omitempty"`
	// startTime is when the first runner of the session started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is when the session completed or failed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// stoppedReason is why the session is being or was stopped: User (suspend), Inactivity
	// (inactivityTimeout), RunFinished (stopOnRunFinished) or BudgetExceeded (maxCostUSD).
	// +optional
	StoppedReason StopReason `json:"stoppedReason,omitempty"`
	// activeDuration is how long the runners of all ended attempts ran in total.
	// +optional
	ActiveDuration Duration `json:"activeDuration,omitzero"`

	// result is the last valid result of a runner. Before the first one, it has the sdkSessionID of the
	// session that continueFrom names.
	// +optional
	Result *SessionResult `json:"result,omitempty"`
	// totalCostUSD is the total cost in US dollars of all attempts that reported one, with that of the open attempt.
	// +optional
	TotalCostUSD *Number `json:"totalCostUSD,omitempty"`

	// workspace is the claim of the session's workspace.
	// +optional
	Workspace SessionClaim `json:"workspace,omitzero"`
}

// SessionAttempt is an attempt of a run. Each attempt has its own Job.
type SessionAttempt struct {
	// run is the number of the attempt's run.
	// +optional
	Run int32 `json:"run,omitempty"`
	// attempt is the number of the attempt within the run, from 1.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// jobName is the name of the Job. It is recorded before the Job is created. An attempt without it was withdrawn.
	// +optional
	JobName string `json:"jobName,omitempty"`
	// jobUID is recorded when the Job was first observed.
	// +optional
	JobUID types.UID `json:"jobUID,omitempty"`
	// runner is the name of the SessionRunner.
	// +optional
	Runner string `json:"runner,omitempty"`
	// inputsRef is the Secret with the inputs of the runner.
	// +optional
	InputsRef LocalReference `json:"inputsRef,omitzero"`
	// limits of the SessionRunner when the attempt was created.
	// +optional
	Limits SessionAttemptLimits `json:"limits,omitzero"`

	// startTime is when the Job started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// activeSince is when the runner's container started: time counts towards timeout from then on. It is removed
	// while the Job is suspended.
	// +optional
	ActiveSince *metav1.Time `json:"activeSince,omitempty"`
	// runnerStartTime is when the runner started, or became ready if the session is interactive.
	// +optional
	RunnerStartTime *metav1.Time `json:"runnerStartTime,omitempty"`
	// lastActivityTime is when the operator last observed that the runner renewed its Lease, to the minute.
	// +optional
	LastActivityTime *metav1.Time `json:"lastActivityTime,omitempty"`
	// leaseRenewTime is the renewTime of the Lease then. Only its change counts, because the runner can set it to
	// any time.
	// +optional
	LeaseRenewTime *metav1.MicroTime `json:"leaseRenewTime,omitempty"`
	// egressTokenExpires is when the token for the egress proxy expires.
	// +optional
	EgressTokenExpires *metav1.Time `json:"egressTokenExpires,omitempty"`
	// stopTime is when the deletion of the Job was requested.
	// +optional
	StopTime *metav1.Time `json:"stopTime,omitempty"`
	// finishTime is when the attempt ended.
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`

	// exitCode of the runner, if known.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// outcome of an ended attempt.
	// +optional
	Outcome RunOutcome `json:"outcome,omitempty"`
	// reason for the outcome, in CamelCase.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is a description for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// costUSD is the highest cost in US dollars that the runner reported, recorded at most once a minute, and at
	// once if it reaches maxCostUSD.
	// +optional
	CostUSD *Number `json:"costUSD,omitempty"`
	// costRecordTime is when costUSD was recorded.
	// +optional
	CostRecordTime *metav1.Time `json:"costRecordTime,omitempty"`
}

// SessionAttemptLimits are what an attempt keeps of its SessionRunner.
type SessionAttemptLimits struct {
	// timeout is how long the session may run.
	// +optional
	Timeout *Duration `json:"timeout,omitempty"`
	// maxCostUSD is how many US dollars the session may cost.
	// +optional
	MaxCostUSD *Number `json:"maxCostUSD,omitempty"`
	// activityLease is whether the runner has a Lease.
	// +optional
	ActivityLease bool `json:"activityLease,omitempty"`
}

// SessionClaim is the claim of a session's workspace.
type SessionClaim struct {
	// claimRef is the PersistentVolumeClaim.
	// +optional
	ClaimRef LocalReference `json:"claimRef,omitzero"`
	// uid of the claim, recorded before a runner uses it: a claim with another UID does not contain the
	// session's files.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// SessionResult is the result that a runner writes as its termination message.
type SessionResult struct {
	// run is the number of the attempt's run.
	// +optional
	Run int32 `json:"run,omitempty"`
	// attempt is the number of the attempt within the run.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// summary of the work, at most 4096 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Summary string `json:"summary,omitempty"`
	// usage is an object with the runner's own counts, such as tokens.
	// +optional
	Usage *apiextensionsv1.JSON `json:"usage,omitempty"`
	// sdkSessionID is the runner's identifier of its conversation, which the next attempt gets. It stays when a later
	// result has none.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	SDKSessionID string `json:"sdkSessionID,omitempty"`
	// repositories are what became of the session's repositories, at most 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Repositories []SessionRepositoryResult `json:"repositories,omitempty"`
	// transcript is where the transcript of the attempt is archived.
	// +optional
	Transcript *SessionTranscript `json:"transcript,omitempty"`
}

// SessionTranscript is where a transcript is archived, as the runner reports it.
type SessionTranscript struct {
	// location is the path in the claim, or the URL s3://bucket/name.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Location string `json:"location,omitempty"`
	// truncated means that the end of the transcript was omitted because it was too long.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
	// error is why the transcript is not archived.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Error string `json:"error,omitempty"`
}

// SessionRepositoryResult is what became of a repository, as the runner reports it.
type SessionRepositoryResult struct {
	// name of the repository's directory in the workspace.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// branch to which the commits were pushed, or that is checked out.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Branch string `json:"branch,omitempty"`
	// commit that is checked out.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Commit string `json:"commit,omitempty"`
	// pushed means that the commit was pushed to the branch.
	// +optional
	Pushed bool `json:"pushed,omitempty"`
	// pullRequestURL is the URL of the pull request.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	PullRequestURL string `json:"pullRequestURL,omitempty"`
	// error is why pushing failed.
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
)
