package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QueueStatus is the observed state of a queue. A number that could not be read, or that the
// engine does not know, is absent; it is never 0 instead.
type QueueStatus struct {
	ObservedStatus `json:",inline"`

	// engine of the broker that holds the queue.
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// name of the queue on the broker.
	// +optional
	Name string `json:"name,omitempty"`

	// priorities that the queue has on the broker: those of the spec, and removed priorities that are not empty yet.
	// Workers take messages of the first 8.
	// +optional
	// +listType=set
	Priorities []string `json:"priorities,omitempty"`

	MessageCounts `json:",inline"`

	// delayed is the number of messages that are not due yet.
	// +optional
	Delayed *int64 `json:"delayed,omitempty"`
	// dead is the number of dead letters.
	// +optional
	Dead *int64 `json:"dead,omitempty"`
	// stranded is the number of messages that are neither deliverable, delayed nor dead. They become dead letters when
	// no worker can hold them. Unknown on Asynq.
	// +optional
	Stranded *int64 `json:"stranded,omitempty"`

	// oldestTime is when the oldest message of the backlog was sent.
	// +optional
	OldestTime *metav1.Time `json:"oldestTime,omitempty"`

	// arrivalRate is the number of messages that arrive per second, over about 30 seconds.
	// +optional
	ArrivalRate *resource.Quantity `json:"arrivalRate,omitempty"`
	// serviceRate is the number of messages that leave the queue per second, over about 30 seconds.
	// +optional
	ServiceRate *resource.Quantity `json:"serviceRate,omitempty"`

	// measuredTime is when the broker reported these numbers, by its clock. It is not renewed while nothing changes.
	// +optional
	MeasuredTime *metav1.Time `json:"measuredTime,omitempty"`

	// effective is the configuration after Policies and defaults.
	// +optional
	Effective *QueueEffective `json:"effective,omitempty"`
}

// MessageCounts are the numbers and the waits of messages of a Queue, or of all queues or the source of a WorkerPool.
type MessageCounts struct {
	// backlog is the number of messages that wait for a worker.
	// +optional
	Backlog *int64 `json:"backlog,omitempty"`
	// inFlight is the number of messages that are delivered and not yet acknowledged; on NATS also those that wait for
	// a retry.
	// +optional
	InFlight *int64 `json:"inFlight,omitempty"`
	// waitP95 is the 95th percentile of the waits of messages started in the last 5 minutes: an estimate, and an upper
	// bound with several priorities. Of a WorkerPool, it is that of the slowest queue.
	// +optional
	WaitP95 *metav1.Duration `json:"waitP95,omitempty"`
}

// QueueEffective is the configuration of a Queue after Policies and defaults.
type QueueEffective struct {
	QueueSettings `json:",inline"`

	EffectiveSources `json:",inline"`
}

// EffectiveSources shows where effective settings come from.
type EffectiveSources struct {
	// sources shows what set the value of each field.
	// +optional
	// +listType=map
	// +listMapKey=field
	// +kubebuilder:validation:MaxItems=64
	Sources []FieldSource `json:"sources,omitempty"`
}

// FieldSource shows what set the value of a field.
type FieldSource struct {
	// field is a path in the spec, such as retry.limit.
	Field string `json:"field"`
	// from is what set the value.
	From ValueSource `json:"from"`
	// policy is the name of the Policy, from Policy or Limit.
	// +optional
	Policy string `json:"policy,omitempty"`
}

// ValueSource is what set a value: the spec of the object, the defaults of a Policy, the limits of
// a Policy, the flags of the operator, or the built-in default.
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

// Reasons of a Queue's conditions.
const (
	ReasonReady = "Ready"
	// ReasonPending means that the operator does not know yet: it is still connecting, or has
	// not reconciled the object for the first time.
	ReasonPending        = "Pending"
	ReasonDeleting       = "Deleting"
	ReasonNoBroker       = "NoBroker"
	ReasonSecretNotFound = "SecretNotFound"
	ReasonSecretInvalid  = "SecretInvalid"
	ReasonConnected      = "Connected"
	// ReasonURLInvalid means that the URL in the Secret of the broker is no URL of a broker.
	ReasonURLInvalid        = "URLInvalid"
	ReasonConnectionFailed  = "ConnectionFailed"
	ReasonUnauthorized      = "Unauthorized"
	ReasonSynced            = "Synced"
	ReasonDrifted           = "Drifted"
	ReasonRefusedByBroker   = "RefusedByBroker"
	ReasonUnsupported       = "Unsupported"
	ReasonRateBelowArrivals = "RateBelowArrivals"
	// ReasonMessagesEvictable means that the server may delete messages when its memory is full.
	ReasonMessagesEvictable = "MessagesEvictable"
	// ReasonMessagesStranded means that the queue has messages that are neither deliverable, delayed nor
	// dead, for longer than it takes to rescue them.
	ReasonMessagesStranded = "MessagesStranded"
	// ReasonFullyReplicated means that all replicas have all messages.
	ReasonFullyReplicated = "FullyReplicated"
	// ReasonSingleReplica means that the spec asks for one replica.
	ReasonSingleReplica = "SingleReplica"
	// ReasonReplicasRefused means that the broker refuses the replicas that the queue should have.
	ReasonReplicasRefused = "ReplicasRefused"
	// ReasonReplicasMissing means that the queue has fewer replicas than it should, and that nothing
	// refuses them.
	ReasonReplicasMissing = "ReplicasMissing"
	// ReasonReplicasOffline means that servers with replicas are offline.
	ReasonReplicasOffline = "ReplicasOffline"
	// ReasonCatchingUp means that replicas do not have all messages yet.
	ReasonCatchingUp        = "CatchingUp"
	ReasonDeadLetters       = "DeadLetters"
	ReasonNoDeadLetters     = "NoDeadLetters"
	ReasonOwnedByOtherQueue = "OwnedByOtherQueue"
	ReasonStillReferenced   = "StillReferenced"
	ReasonNotEmpty          = "NotEmpty"
	ReasonNotBlocked        = "NotBlocked"
)

// Reasons of events on a Queue.
const (
	EventQueueCreated       = "QueueCreated"
	EventQueueDeleted       = "QueueDeleted"
	EventDriftCorrected     = "DriftCorrected"
	EventDelayedErased      = "DelayedErased"
	EventDriftFound         = "DriftFound"
	EventDeadLetters        = "DeadLetters"
	EventBrokerUnreachable  = "BrokerUnreachable"
	EventBrokerReachable    = "BrokerReachable"
	EventDeletionBlocked    = "DeletionBlocked"
	EventExperimentalEngine = "ExperimentalEngine"
)
