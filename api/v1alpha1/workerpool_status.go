package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkerPoolStatus is what was seen of the pool, and what was decided. A figure that could
// not be read is left out: it is never 0 instead.
type WorkerPoolStatus struct {
	// conditions: Ready, Available, Progressing, ScalingActive, ScalingLimited,
	// MetricsFresh, Draining, DrainTimedOut, RolloutPaused, Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation this status was derived from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// desired number of workers, those being drained not counted.
	// +optional
	// +kubebuilder:default=0
	Desired int32 `json:"desired"`
	// replicas there are, those being drained too.
	// +optional
	// +kubebuilder:default=0
	Replicas int32 `json:"replicas"`
	// selector of the workers' Pods, as the scale subresource gives it.
	// +optional
	Selector string `json:"selector,omitempty"`
	// ready workers take messages.
	// +optional
	// +kubebuilder:default=0
	Ready int32 `json:"ready"`
	// busy workers have a message in flight.
	// +optional
	Busy *int32 `json:"busy,omitempty"`
	// draining workers finish what they have.
	// +optional
	// +kubebuilder:default=0
	Draining int32 `json:"draining"`

	// currentRevision is the one that all workers have, or had before the rollout.
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`
	// updatedRevision is the one of the spec.
	// +optional
	UpdatedRevision string `json:"updatedRevision,omitempty"`
	// revisions that have workers or are kept to go back to, the newest first.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Revisions []RevisionStatus `json:"revisions,omitempty"`

	// backlog is how many messages wait for the pool's workers.
	// +optional
	Backlog *int64 `json:"backlog,omitempty"`
	// inFlight is how many its workers are at.
	// +optional
	InFlight *int64 `json:"inFlight,omitempty"`

	// slo says how the pool keeps to its waiting time.
	// +optional
	SLO *ObjectiveStatus `json:"slo,omitempty"`

	// lastDecision about the number of workers.
	// +optional
	LastDecision *ScaleDecision `json:"lastDecision,omitempty"`

	// scaling is what the next decision must know of those before.
	// +optional
	Scaling *ScaleMemory `json:"scaling,omitempty"`

	// effective is what holds after Policies and defaults.
	// +optional
	Effective *WorkerPoolEffective `json:"effective,omitempty"`

	// enforcement tells, by the name of each field in use, who keeps to it.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Enforcement map[string]Enforcement `json:"enforcement,omitempty"`
}

// RevisionStatus is what is known of one revision of the workers.
type RevisionStatus struct {
	// name of the revision, and of its Deployment or StatefulSet.
	Name string `json:"name"`
	// hash of what its workers are made from.
	// +optional
	Hash string `json:"hash,omitempty"`
	// version it was given.
	// +optional
	Version string `json:"version,omitempty"`
	// image of its worker.
	// +optional
	Image string `json:"image,omitempty"`
	// replicas it has.
	// +optional
	// +kubebuilder:default=0
	Replicas int32 `json:"replicas"`
	// ready ones among them.
	// +optional
	// +kubebuilder:default=0
	Ready int32 `json:"ready"`
	// draining ones among them.
	// +optional
	// +kubebuilder:default=0
	Draining int32 `json:"draining"`
	// succeeded messages, as its present workers count them.
	// +optional
	Succeeded *int64 `json:"succeeded,omitempty"`
	// failed messages, as its present workers count them.
	// +optional
	Failed *int64 `json:"failed,omitempty"`
	// createdTime is when it was first seen.
	// +optional
	CreatedTime *metav1.Time `json:"createdTime,omitempty"`
}

// ObjectiveStatus says how a pool keeps to its waiting time.
type ObjectiveStatus struct {
	// waitP95 is the objective.
	// +optional
	WaitP95 *metav1.Duration `json:"waitP95,omitempty"`
	// measuredP95 is what messages waited in the last minutes.
	// +optional
	MeasuredP95 *metav1.Duration `json:"measuredP95,omitempty"`
	// met is True, False or Unknown.
	// +optional
	Met metav1.ConditionStatus `json:"met,omitempty"`
}

// ScaleDecision is a decision about the number of workers, and what it was made from.
type ScaleDecision struct {
	// time of the decision.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// inputs it was made from.
	// +optional
	Inputs ScaleInputs `json:"inputs,omitempty"`
	// want is how many workers the figures ask for.
	// +optional
	// +kubebuilder:default=0
	Recommendation int32 `json:"recommendation"`
	// applied is how many there shall be, after all rules.
	// +optional
	// +kubebuilder:default=0
	Applied int32 `json:"applied"`
	// reason why it is not another number, in CamelCase.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message for people, at most 256 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// ScaleInputs are the figures a decision was made from. One that was not known is left
// out.
type ScaleInputs struct {
	// replicas there were.
	// +optional
	// +kubebuilder:default=0
	Replicas int32 `json:"replicas"`
	// backlog of messages that waited, those soon due included.
	// +optional
	Backlog *int64 `json:"backlog,omitempty"`
	// inFlight messages.
	// +optional
	InFlight *int64 `json:"inFlight,omitempty"`
	// oldestAge of those that waited.
	// +optional
	OldestAge *metav1.Duration `json:"oldestAge,omitempty"`
	// arrivalRate in messages a second.
	// +optional
	ArrivalRate *resource.Quantity `json:"arrivalRate,omitempty"`
	// serviceTime of a message.
	// +optional
	ServiceTime *metav1.Duration `json:"serviceTime,omitempty"`
	// concurrency of a worker.
	// +optional
	Concurrency int32 `json:"concurrency,omitempty"`
	// podStart is how long a Pod takes from its making until it takes messages.
	// +optional
	PodStart *metav1.Duration `json:"podStart,omitempty"`
}

// WorkerPoolEffective is what holds for a WorkerPool, and why.
type WorkerPoolEffective struct {
	// drain in use.
	// +optional
	Drain *Drain `json:"drain,omitempty"`
	// circuitBreaker in use; left out when no Policy has one.
	// +optional
	CircuitBreaker *CircuitBreaker `json:"circuitBreaker,omitempty"`
	// maxReplicas in use.
	// +optional
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// sources of these values.
	// +optional
	// +listType=map
	// +listMapKey=field
	// +kubebuilder:validation:MaxItems=64
	Sources []FieldSource `json:"sources,omitempty"`
}

// Condition types of a WorkerPool. It has those named Ready, Available and Progressing
// too: it is Available when minReplicas workers are ready, and Progressing while a rollout
// gets on.
const (
	// ConditionScalingActive is False when autoscaling is paused, a dry run, or has no
	// figures to go by.
	ConditionScalingActive = "ScalingActive"
	// ConditionScalingLimited is True when more or fewer workers are wanted than the rules
	// allow.
	ConditionScalingLimited = "ScalingLimited"
	// ConditionMetricsFresh is False when the last figures are old, or there are none.
	ConditionMetricsFresh = "MetricsFresh"
	// ConditionDraining is True while workers finish.
	ConditionDraining = "Draining"
	// ConditionDrainTimedOut is True when a worker has not finished in drain.timeout.
	ConditionDrainTimedOut = "DrainTimedOut"
	// ConditionRolloutPaused is True when a rollout has stopped, and why.
	ConditionRolloutPaused = "RolloutPaused"
	// ConditionDegraded is True when workers fail to start, or restart again and again.
	ConditionDegraded = "Degraded"
)

// Reasons of a WorkerPool's conditions. Those of a decision are in package scaling.
const (
	ReasonQueueNotFound          = "QueueNotFound"
	ReasonQueuesOnSeveralBrokers = "QueuesOnSeveralBrokers"
	ReasonSpecInvalid            = "SpecInvalid"
	ReasonPolicyDenied           = "PolicyDenied"
	ReasonMinimumAvailable       = "MinimumAvailable"
	ReasonMinimumUnavailable     = "MinimumUnavailable"
	ReasonRolledOut              = "RolledOut"
	ReasonRollingOut             = "RollingOut"
	ReasonNoProgress             = "NoProgress"
	ReasonAnalysisFailed         = "AnalysisFailed"
	ReasonImagePull              = "ImagePull"
	ReasonCrashLoop              = "CrashLoop"
	ReasonMetricsFresh           = "MetricsFresh"
	ReasonMetricsStale           = "MetricsStale"
	ReasonAutoscaled             = "Autoscaled"
	ReasonManual                 = "Manual"
	ReasonWithinBounds           = "WithinBounds"
	ReasonDrained                = "Drained"
	ReasonDrainsRunning          = "DrainsRunning"
	ReasonDrainTimeout           = "DrainTimeout"
)

// Reasons of events on a WorkerPool.
const (
	EventScaled           = "Scaled"
	EventScalingLimited   = "ScalingLimited"
	EventMetricsLost      = "MetricsLost"
	EventMetricsRecovered = "MetricsRecovered"
	EventDrainStarted     = "DrainStarted"
	EventDrainTimedOut    = "DrainTimedOut"
	EventRolloutStarted   = "RolloutStarted"
	EventRolloutPaused    = "RolloutPaused"
	EventRolloutCompleted = "RolloutCompleted"
	EventRolledBack       = "RolledBack"
	EventPreempted        = "Preempted"
)
