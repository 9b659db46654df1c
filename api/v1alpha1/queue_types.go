package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QueueFinalizer is on a Queue until its deletionPolicy was carried out on the broker.
const QueueFinalizer = Prefix + "queue"

// Queue is a work queue on a broker. The operator makes it there and keeps it as the spec
// says; workers and producers find it by its name.
//
// The name is the broker's key to the messages, so it holds for good: it may be set to
// what it already is, and to nothing else.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wq,categories=yardmaster
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.status.engine`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="InFlight",type=integer,JSONPath=`.status.inFlight`
// +kubebuilder:printcolumn:name="Oldest",type=date,JSONPath=`.status.oldestTime`
// +kubebuilder:printcolumn:name="P95 Wait",type=string,JSONPath=`.status.wait.p95`
// +kubebuilder:printcolumn:name="Dead",type=integer,JSONPath=`.status.dead`
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="Condition",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Delayed",type=integer,priority=1,JSONPath=`.status.delayed`
// +kubebuilder:printcolumn:name="Age",type=date,priority=1,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec.name) || self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name is no name for a queue, which is at most 63 lower-case letters, digits and dashes: give spec.name",fieldPath=".spec.name"
// +kubebuilder:validation:XValidation:rule="(has(self.spec.name) ? self.spec.name : self.metadata.name) == (has(oldSelf.spec.name) ? oldSelf.spec.name : oldSelf.metadata.name)",message="name is immutable: the messages on the broker are kept under it",fieldPath=".spec.name"
// +kubebuilder:validation:XValidation:rule="!(has(self.spec.name) ? self.spec.name : self.metadata.name).startsWith('yardmaster')",message="name is reserved: what begins with yardmaster is the operator's own",fieldPath=".spec.name"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.deadLetter) || !has(self.spec.deadLetter.moveTo) || self.spec.deadLetter.moveTo != self.metadata.name",message="moveTo must be another Queue",fieldPath=".spec.deadLetter.moveTo"
type Queue struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the wanted queue. All of it has defaults.
	// +optional
	// +kubebuilder:default={}
	Spec QueueSpec `json:"spec,omitempty"`

	// status is what was seen of the queue on the broker.
	// +optional
	Status QueueStatus `json:"status,omitempty"`
}

// QueueList is a list of Queues.
//
// +kubebuilder:object:root=true
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Queue `json:"items"`
}

// QueueSpec is the wanted queue. Durations are written as 500ms, 30s, 10m, 1h30m.
//
// What is left out of retry and deadLetter, and broker and rateLimit as a whole, is taken
// from the Policies that select the Queue; only then do the defaults named here hold.
// status.effective has the outcome.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxInFlight) || !has(self.maxBacklog) || self.maxInFlight <= self.maxBacklog",message="maxInFlight must not be greater than maxBacklog",fieldPath=".maxInFlight"
// +kubebuilder:validation:XValidation:rule="!has(self.strictPriority) || !self.strictPriority || !has(self.priorities) || self.priorities.all(p, self.priorities.exists_one(q, q.weight == p.weight))",message="with strictPriority the weights are the order: no two may be the same",fieldPath=".priorities"
type QueueSpec struct {
	// broker the queue is on. Left out: the Policy's, or the operator's own.
	// +optional
	Broker *Broker `json:"broker,omitempty"`

	// name of the queue on the broker. Left out: metadata.name. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// priorities of messages. A producer names one; without it a message has the first.
	// Workers take from each by its weight, so that none starves.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:default={{name: "default", weight: 1}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Priorities []QueuePriority `json:"priorities,omitempty"`

	// strictPriority has workers take from a priority only while those of greater weight
	// are empty.
	// +optional
	StrictPriority bool `json:"strictPriority,omitempty"`

	// paused keeps messages from workers. Producers may still add some, and what is in
	// flight is finished.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// rateLimit bounds how many messages are begun, by all workers together. Left out: the
	// Policy's, or none.
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`

	// maxInFlight bounds how many messages all workers together work on. Left out: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`

	// maxBacklog is how many messages the queue holds, those in flight included. When it is
	// full, it refuses producers. Left out: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxBacklog *int64 `json:"maxBacklog,omitempty"`

	// lease is how long a worker has a message before it must renew that, 5s to 1h. A worker
	// of ours renews in time; one that died loses its messages to others when this is over.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="lease must be a duration from 5s to 1h"
	Lease *Duration `json:"lease,omitempty"`

	// retry says when a message that failed is tried again.
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// deadLetter says what becomes of messages that are given up.
	// +optional
	DeadLetter *DeadLetter `json:"deadLetter,omitempty"`

	// retention removes messages that nobody took.
	// +optional
	Retention *Retention `json:"retention,omitempty"`

	// deletionPolicy says what becomes of the queue on the broker when the Queue is deleted.
	// Retain leaves it there; Drain refuses producers and waits until it is empty; Purge
	// deletes it with all messages.
	// +optional
	// +kubebuilder:default=Retain
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// drift says what is done when somebody changed the queue on the broker by hand. Correct
	// changes it back; Warn only tells.
	// +optional
	// +kubebuilder:default=Correct
	Drift DriftPolicy `json:"drift,omitempty"`
}

// QueuePriority is one of a queue's priorities.
type QueuePriority struct {
	// name by which producers ask for it: a DNS label of at most 32 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// weight is its share of the workers' attention beside the other priorities' weights.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
}

// RateLimit bounds how many messages are begun in a time.
type RateLimit struct {
	// limit is how many messages.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Limit int32 `json:"limit"`

	// per is the time in which so many are begun, 1s to 24h.
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="per must be a duration from 1s to 24h"
	Per *Duration `json:"per,omitempty"`

	// burst is how many may be begun at once after a pause. Left out: limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Burst *int32 `json:"burst,omitempty"`
}

// Retry says when a message that failed is tried again: after initialDelay, which each
// further failure multiplies, up to maxDelay.
//
// +kubebuilder:validation:XValidation:rule="!has(self.initialDelay) || !has(self.maxDelay) || duration(self.initialDelay) <= duration(self.maxDelay)",message="initialDelay must not be longer than maxDelay",fieldPath=".initialDelay"
type Retry struct {
	// maxAttempts is how often a message is tried before it is given up, the first try
	// included. Default 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxAttempts *int32 `json:"maxAttempts,omitempty"`

	// initialDelay before the second try, 0s to 24h. Default 1s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) <= duration('24h')",message="initialDelay must be a duration from 0s to 24h"
	InitialDelay *Duration `json:"initialDelay,omitempty"`

	// maxDelay before any try, 0s to 24h. Default 10m, or initialDelay if that is longer.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) <= duration('24h')",message="maxDelay must be a duration from 0s to 24h"
	MaxDelay *Duration `json:"maxDelay,omitempty"`

	// multiplierPercent is what each delay is of the one before it. Default 200: it doubles.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	MultiplierPercent *int32 `json:"multiplierPercent,omitempty"`

	// jitterPercent is by how much, up or down, a delay may differ at random, so that what
	// failed together is not tried together. Default 20.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	JitterPercent *int32 `json:"jitterPercent,omitempty"`
}

// DeadLetter says what becomes of messages that are given up. They keep their payload,
// their last error, how often they were tried and where they came from.
//
// +kubebuilder:validation:XValidation:rule="(has(self.onDelete) && self.onDelete == 'Move') == has(self.moveTo)",message="moveTo is needed with onDelete: Move, and only with it",fieldPath=".moveTo"
type DeadLetter struct {
	// enabled keeps them. Otherwise they are dropped. Default true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// maxEntries drops the oldest dead letters over this number. Default 0: none ever.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxEntries *int64 `json:"maxEntries,omitempty"`

	// retention drops dead letters of this age. Default 0s: none ever.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) <= duration('87600h')",message="retention must be a duration from 0s to 87600h"
	Retention *Duration `json:"retention,omitempty"`

	// alertThreshold is from how many dead letters on the condition DeadLettersPresent is
	// True. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	AlertThreshold *int64 `json:"alertThreshold,omitempty"`

	// onDelete says what becomes of them when the Queue is deleted. Block keeps the Queue
	// until there are none; Move moves them to another Queue; Purge deletes them. Default
	// Block.
	// +optional
	OnDelete DeadLetterAction `json:"onDelete,omitempty"`

	// moveTo is the Queue of the same namespace that onDelete: Move means.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	MoveTo string `json:"moveTo,omitempty"`
}

// Retention removes messages that nobody took.
type Retention struct {
	// maxAge of a message that was not yet tried, 1m to 87600h. An older one is dropped.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('87600h')",message="maxAge must be a duration from 1m to 87600h"
	MaxAge Duration `json:"maxAge"`
}

// DeletionPolicy says what becomes of a queue on the broker.
// +kubebuilder:validation:Enum=Retain;Drain;Purge
type DeletionPolicy string

// The deletion policies.
const (
	DeletionRetain DeletionPolicy = "Retain"
	DeletionDrain  DeletionPolicy = "Drain"
	DeletionPurge  DeletionPolicy = "Purge"
)

// DeadLetterAction says what becomes of a deleted Queue's dead letters.
// +kubebuilder:validation:Enum=Block;Move;Purge
type DeadLetterAction string

// The dead-letter actions.
const (
	DeadLetterBlock DeadLetterAction = "Block"
	DeadLetterMove  DeadLetterAction = "Move"
	DeadLetterPurge DeadLetterAction = "Purge"
)

// DriftPolicy says what is done about changes made on the broker by hand.
// +kubebuilder:validation:Enum=Correct;Warn
type DriftPolicy string

// The drift policies.
const (
	DriftCorrect DriftPolicy = "Correct"
	DriftWarn    DriftPolicy = "Warn"
)
