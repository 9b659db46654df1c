package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkerPoolStatus is the observed state of a WorkerPool. A value that could not be read is
// omitted; it is never reported as 0.
type WorkerPoolStatus struct {
	ObservedStatus `json:",inline"`

	// desired is the number of workers that should take messages, without draining ones.
	// +optional
	// +kubebuilder:default=0
	Desired      int32 `json:"desired"`
	WorkerCounts `json:",inline"`

	// selector of the workers' Pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`
	// busy is the number of workers that handle a message now.
	// +optional
	Busy *int32 `json:"busy,omitempty"`
	// openBreakers is the number of workers whose circuit breaker for a queue is not closed.
	// +optional
	OpenBreakers *int32 `json:"openBreakers,omitempty"`

	// currentRevision is the revision that serves; during a rollout, the old one.
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`
	// updatedRevision is the revision that the spec asks for.
	// +optional
	UpdatedRevision string `json:"updatedRevision,omitempty"`
	// revisions with workers or kept for rollbacks, newest first, at most 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Revisions []RevisionStatus `json:"revisions,omitempty"`

	MessageCounts `json:",inline"`

	// snoozed is the number of messages of the backlog that workers gave back, to have them delivered again within a minute.
	// +optional
	Snoozed *int64 `json:"snoozed,omitempty"`

	// objectiveMet is whether waits are within autoscaling.waitP95: True, False or Unknown.
	// +optional
	ObjectiveMet metav1.ConditionStatus `json:"objectiveMet,omitempty"`

	// lastDecision is the last scaling decision.
	// +optional
	LastDecision *ScaleDecision `json:"lastDecision,omitempty"`

	// idleSince is since when an autoscaled pool has no work.
	// +optional
	IdleSince *metav1.Time `json:"idleSince,omitempty"`

	// effective settings after Policies and defaults are applied.
	// +optional
	Effective *WorkerPoolEffective `json:"effective,omitempty"`
}

// WorkerCounts are the numbers of workers of a WorkerPool or of one of its revisions.
type WorkerCounts struct {
	// replicas is the number of workers, including draining ones.
	// +optional
	// +kubebuilder:default=0
	Replicas int32 `json:"replicas"`
	// ready is the number of workers that take messages.
	// +optional
	// +kubebuilder:default=0
	Ready int32 `json:"ready"`
	// draining is the number of workers that finish their messages and stop.
	// +optional
	// +kubebuilder:default=0
	Draining int32 `json:"draining"`
}

// RevisionStatus is the state of one revision.
type RevisionStatus struct {
	// name of the revision, and of its Deployment or StatefulSet.
	Name string `json:"name"`
	// version from spec.version.
	// +optional
	Version string `json:"version,omitempty"`
	// image of the worker container.
	// +optional
	Image        string `json:"image,omitempty"`
	WorkerCounts `json:",inline"`
	// succeeded is the number of messages that its workers handled.
	// +optional
	Succeeded *int64 `json:"succeeded,omitempty"`
	// failed is the number of messages that its workers failed to handle.
	// +optional
	Failed *int64 `json:"failed,omitempty"`
	// snoozed is how often its workers gave a message back without an attempt.
	// +optional
	Snoozed *int64 `json:"snoozed,omitempty"`
}

// ScaleDecision is a scaling decision.
type ScaleDecision struct {
	// time of the decision.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// recommendation is the number of workers before limits.
	// +optional
	// +kubebuilder:default=0
	Recommendation int32 `json:"recommendation"`
	// The reason for the number of workers after limits, status.desired, and the values of the formula.
	Explanation `json:",inline"`
}

// WorkerPoolEffective contains the settings in use, and where they come from.
type WorkerPoolEffective struct {
	WorkerSettings `json:",inline"`

	// maxReplicas in use.
	// +optional
	MaxReplicas      *int32 `json:"maxReplicas,omitempty"`
	EffectiveSources `json:",inline"`
}

// Reasons of a WorkerPool's conditions, in addition to the reasons of scaling decisions.
const (
	ReasonQueueNotFound          = "QueueNotFound"
	ReasonQueueNotReady          = "QueueNotReady"
	ReasonQueuesOnSeveralBrokers = "QueuesOnSeveralBrokers"
	ReasonSpecInvalid            = "SpecInvalid"
	ReasonPolicyDenied           = "PolicyDenied"
	ReasonMinimumAvailable       = "MinimumAvailable"
	ReasonMinimumUnavailable     = "MinimumUnavailable"
	ReasonRolledOut              = "RolledOut"
	ReasonRollingOut             = "RollingOut"
	ReasonWorkersStarting        = "WorkersStarting"
	ReasonNoProgress             = "NoProgress"
	ReasonAnalysisFailed         = "AnalysisFailed"
	ReasonImagePull              = "ImagePull"
	ReasonCrashLoop              = "CrashLoop"
	ReasonMetricsStale           = "MetricsStale"
	ReasonAutoscaled             = "Autoscaled"
	ReasonManual                 = "Manual"
	ReasonWithinBounds           = "WithinBounds"
	ReasonDrainTimeout           = "DrainTimeout"
	// ReasonNothingFinished: work is due, and none has finished for five minutes.
	ReasonNothingFinished = "NothingFinished"
	// ReasonApplicationUnavailable: workers take no messages, because their application cannot run jobs.
	ReasonApplicationUnavailable = "ApplicationUnavailable"
)

// Reasons of events on a WorkerPool.
const (
	EventScaled           = "Scaled"
	EventScalingLimited   = "ScalingLimited"
	EventMetricsLost      = "MetricsLost"
	EventMetricsRecovered = "MetricsRecovered"
	EventDrainStarted     = "DrainStarted"
	EventDrainTimedOut    = "DrainTimedOut"
	EventNothingFinished  = "NothingFinished"
	EventRolloutStarted   = "RolloutStarted"
	EventRolloutPaused    = "RolloutPaused"
	EventRolloutCompleted = "RolloutCompleted"
	EventRolledBack       = "RolledBack"
	EventPreempted        = "Preempted"
)
