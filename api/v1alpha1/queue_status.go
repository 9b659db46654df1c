package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QueueStatus is what was seen of the queue on the broker. A figure that could not be
// read, or that the engine does not know, is left out: it is never 0 instead.
type QueueStatus struct {
	// conditions: Ready, BrokerReachable, ConfigSynced, PolicyFullyEnforced,
	// DeadLettersPresent, Conflict, DeletionBlocked.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation this status was derived from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// engine of the broker the queue is on.
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// name of the queue on the broker.
	// +optional
	Name string `json:"name,omitempty"`

	// ready messages wait for a worker.
	// +optional
	Ready *int64 `json:"ready,omitempty"`
	// inFlight messages are with a worker.
	// +optional
	InFlight *int64 `json:"inFlight,omitempty"`
	// delayed messages wait for their time, or for their next try.
	// +optional
	Delayed *int64 `json:"delayed,omitempty"`
	// dead messages were given up.
	// +optional
	Dead *int64 `json:"dead,omitempty"`

	// oldestTime is when the oldest of the ready messages came.
	// +optional
	OldestTime *metav1.Time `json:"oldestTime,omitempty"`

	// wait of the messages begun in the last minutes, from when they were due.
	// +optional
	Wait *WaitTimes `json:"wait,omitempty"`

	// arrivalRate is how many messages come in a second, smoothed.
	// +optional
	ArrivalRate *resource.Quantity `json:"arrivalRate,omitempty"`
	// serviceRate is how many messages are finished in a second, smoothed.
	// +optional
	ServiceRate *resource.Quantity `json:"serviceRate,omitempty"`

	// measuredTime is when the broker gave these figures.
	// +optional
	MeasuredTime *metav1.Time `json:"measuredTime,omitempty"`

	// effective is what holds after Policies and defaults.
	// +optional
	Effective *QueueEffective `json:"effective,omitempty"`

	// enforcement tells, by the name of each field in use, how the engine keeps to it.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Enforcement map[string]Enforcement `json:"enforcement,omitempty"`
}

// WaitTimes are quantiles of how long messages waited.
type WaitTimes struct {
	// p50 is what half of them waited at most.
	// +optional
	P50 *metav1.Duration `json:"p50,omitempty"`
	// p95 is what 95 of 100 waited at most.
	// +optional
	P95 *metav1.Duration `json:"p95,omitempty"`
}

// QueueEffective is what holds for a Queue, and why.
type QueueEffective struct {
	// broker in use; left out when it is the operator's own.
	// +optional
	Broker *Broker `json:"broker,omitempty"`
	// rateLimit in use.
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`
	// retry in use.
	// +optional
	Retry *Retry `json:"retry,omitempty"`
	// deadLetter in use.
	// +optional
	DeadLetter *DeadLetter `json:"deadLetter,omitempty"`
	// sources of these values.
	// +optional
	// +listType=map
	// +listMapKey=field
	// +kubebuilder:validation:MaxItems=64
	Sources []FieldSource `json:"sources,omitempty"`
}

// FieldSource says where a field's value comes from.
type FieldSource struct {
	// field by its path in the spec, e.g. retry.maxAttempts.
	Field string `json:"field"`
	// from says who set it.
	From ValueSource `json:"from"`
	// policy that set or limits it, when from is Policy or Limit.
	// +optional
	Policy string `json:"policy,omitempty"`
}

// ValueSource says who set a value: the object's own spec, a Policy's defaults, a Policy's
// limits over what else would hold, the operator's flags, or nobody.
// +kubebuilder:validation:Enum=Spec;Policy;Limit;Operator;Default
type ValueSource string

// The sources of values.
const (
	FromSpec     ValueSource = "Spec"
	FromPolicy   ValueSource = "Policy"
	FromLimit    ValueSource = "Limit"
	FromOperator ValueSource = "Operator"
	FromDefault  ValueSource = "Default"
)

// Enforcement says how an engine keeps to a field.
// +kubebuilder:validation:Enum=Broker;Workers;Unsupported
type Enforcement string

// The enforcements.
const (
	// EnforcedByBroker: the broker keeps to it, whatever clients do.
	EnforcedByBroker Enforcement = "Broker"
	// EnforcedByWorkers: workers that use our runtime keep to it.
	EnforcedByWorkers Enforcement = "Workers"
	// EnforcementUnsupported: nobody keeps to it.
	EnforcementUnsupported Enforcement = "Unsupported"
)

// Condition types of a Queue.
const (
	// ConditionReady is True when the object does what its spec says. A WorkerPool and a
	// Policy have it too.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the operator works on the object, or waits for
	// something that can happen by itself. kstatus reads it. Every kind has it.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when the operator cannot make progress until someone changes
	// the object or something it depends on. kstatus reads it. Every kind has it.
	ConditionStalled = "Stalled"
	// ConditionBrokerReachable is False when the broker cannot be reached or refuses us.
	ConditionBrokerReachable = "BrokerReachable"
	// ConditionConfigSynced is False when the queue on the broker is not as the spec says.
	ConditionConfigSynced = "ConfigSynced"
	// ConditionPolicyFullyEnforced is False when nobody keeps to some field of the spec.
	ConditionPolicyFullyEnforced = "PolicyFullyEnforced"
	// ConditionDeadLettersPresent is True from deadLetter.alertThreshold dead letters on.
	ConditionDeadLettersPresent = "DeadLettersPresent"
	// ConditionConflict is True when an older Queue has the same queue on the same broker.
	ConditionConflict = "Conflict"
	// ConditionDeletionBlocked is True while something keeps a deleted Queue.
	ConditionDeletionBlocked = "DeletionBlocked"
)

// Reasons of a Queue's conditions.
const (
	ReasonReady = "Ready"
	// ReasonPending means that the operator does not know yet: it is still connecting, or has
	// not reconciled the object for the first time.
	ReasonPending           = "Pending"
	ReasonPaused            = "Paused"
	ReasonDeleting          = "Deleting"
	ReasonNoBroker          = "NoBroker"
	ReasonSecretNotFound    = "SecretNotFound"
	ReasonSecretInvalid     = "SecretInvalid"
	ReasonConnected         = "Connected"
	ReasonConnectionFailed  = "ConnectionFailed"
	ReasonUnauthorized      = "Unauthorized"
	ReasonSynced            = "Synced"
	ReasonDrifted           = "Drifted"
	ReasonRefusedByBroker   = "RefusedByBroker"
	ReasonEnforced          = "Enforced"
	ReasonUnsupported       = "Unsupported"
	ReasonRateBelowArrivals = "RateBelowArrivals"
	ReasonDeadLetters       = "DeadLetters"
	ReasonNoDeadLetters     = "NoDeadLetters"
	ReasonOwnedByOtherQueue = "OwnedByOtherQueue"
	ReasonStillReferenced   = "StillReferenced"
	ReasonNotEmpty          = "NotEmpty"
	ReasonNotBlocked        = "NotBlocked"
)

// Reasons of events on a Queue.
const (
	EventQueueCreated      = "QueueCreated"
	EventQueueDeleted      = "QueueDeleted"
	EventDriftCorrected    = "DriftCorrected"
	EventDriftFound        = "DriftFound"
	EventDeadLetters       = "DeadLetters"
	EventBrokerUnreachable = "BrokerUnreachable"
	EventBrokerReachable   = "BrokerReachable"
	EventDeletionBlocked   = "DeletionBlocked"
)
