package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QueueFinalizer keeps a deleted Queue until its deletionPolicy is carried out on the broker.
const QueueFinalizer = Prefix + "queue"

// Queue is a work queue on a message broker. The operator creates the queue on the broker and
// keeps its configuration as the spec says. Producers and workers use it by its name.
//
// The broker stores the messages under the name of the queue, so the name is immutable.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wq,categories=yardmaster
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Backlog",type=integer,JSONPath=`.status.backlog`
// +kubebuilder:printcolumn:name="InFlight",type=integer,JSONPath=`.status.inFlight`
// +kubebuilder:printcolumn:name="Oldest",type=date,JSONPath=`.status.oldestTime`
// +kubebuilder:printcolumn:name="P95 Wait",type=string,JSONPath=`.status.waitP95`
// +kubebuilder:printcolumn:name="Dead",type=integer,JSONPath=`.status.dead`
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Engine",type=string,priority=1,JSONPath=`.status.engine`
// +kubebuilder:printcolumn:name="Delayed",type=integer,priority=1,JSONPath=`.status.delayed`
// +kubebuilder:printcolumn:name="Replicated",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Replicated")].status`
// +kubebuilder:printcolumn:name="Age",type=date,priority=1,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec.name) || self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name is not a valid queue name (at most 63 lower-case letters, digits and dashes): set spec.name",fieldPath=".spec.name"
// +kubebuilder:validation:XValidation:rule="(has(self.spec.name) ? self.spec.name : self.metadata.name) == (has(oldSelf.spec.name) ? oldSelf.spec.name : oldSelf.metadata.name) && (has(self.spec.name) == has(oldSelf.spec.name) || has(self.status) && has(self.status.name) && self.status.name == self.metadata.name)",message="name is immutable: the broker stores the messages under it",fieldPath=".spec.name"
// +kubebuilder:validation:XValidation:rule="!(has(self.spec.name) ? self.spec.name : self.metadata.name).startsWith('yardmaster')",message="name is reserved: names that start with yardmaster belong to the operator",fieldPath=".spec.name"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.deadLetter) || !has(self.spec.deadLetter.moveToRef) || self.spec.deadLetter.moveToRef.name != self.metadata.name",message="moveToRef must be another Queue",fieldPath=".spec.deadLetter.moveToRef"
type Queue struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired configuration of the queue. Every field has a default.
	// +optional
	// +kubebuilder:default={}
	Spec QueueSpec `json:"spec,omitempty"`

	// status is the observed state of the queue on the broker.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	// +structType=atomic
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

// QueueSpec is the desired configuration of a queue. Durations are written as 500ms, 30s, 10m or
// 1h30m.
//
// Policies that select the Queue provide defaults for broker, rateLimit, and each field of retry
// and deadLetter. The defaults named here apply after those. status.effective shows the result.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxInFlight) || !has(self.maxBacklog) || self.maxInFlight <= self.maxBacklog",message="maxInFlight must not be greater than maxBacklog",fieldPath=".maxInFlight"
// +kubebuilder:validation:XValidation:rule="!has(self.results) || !has(self.lease) || duration(self.results.retention) >= duration(self.lease)",message="retention must not be shorter than lease: a running job is reported several times in each lease",fieldPath=".results.retention"
// +kubebuilder:validation:XValidation:rule="!has(self.strictPriority) || !self.strictPriority || !has(self.priorities) || self.priorities.all(p, self.priorities.exists_one(q, q.weight == p.weight))",message="with strictPriority the weights define the order: each priority needs another weight",fieldPath=".priorities"
// +kubebuilder:validation:XValidation:rule="(has(self.storage) && has(self.storage.type) ? self.storage.type : 'File') == (has(oldSelf.storage) && has(oldSelf.storage.type) ? oldSelf.storage.type : 'File')",message="type is immutable: the broker cannot change where it stores a queue",fieldPath=".storage.type"
type QueueSpec struct {
	QueueSettings `json:",inline"`

	// name of the queue on the broker: at most 63 lower-case letters, digits and dashes. Immutable.
	// The first Queue with a name owns it, in whatever namespace or cluster it is. Default: a name
	// that contains the namespace, metadata.name and an ID of the cluster; see status.name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// priorities of messages, 1 to 8. A producer selects one by name; other messages get the
	// first. Workers take messages from each priority in proportion to its weight, so that none
	// starves. A removed priority stays on the broker until it is empty. Default: one priority
	// named default.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:default={{name: "default", weight: 1}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Priorities []QueuePriority `json:"priorities,omitempty"`

	// strictPriority makes workers take messages of a priority only while all priorities of
	// greater weight are empty. Default: false.
	// +optional
	StrictPriority bool `json:"strictPriority,omitempty"`

	// suspend stops the delivery of messages to workers, which finish those in flight. Producers can still send.
	// Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// maxInFlight is the maximum number of messages that all workers together process at a time, 1
	// to 1000000. Each priority gets a share by weight. Default: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`

	// maxBacklog is the maximum number of messages in the queue, including those in flight. A full
	// queue rejects new messages. Default: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxBacklog *int64 `json:"maxBacklog,omitempty"`

	// lease is the time a worker may hold a message without extending the lease, 5s to 1h. Then
	// the message is redelivered. Workers with the Yardmaster runtime extend it in time; the
	// messages of a worker that died go to other workers after this time. Default: 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="lease must be a duration from 5s to 1h"
	Lease *Duration `json:"lease,omitempty"`

	// messageTimeout is the time that a handler has for a message, 1s to 24h; then the attempt has failed. The header
	// Yardmaster-Timeout of a message overrides it. Unset means no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="messageTimeout must be a duration from 1s to 24h"
	MessageTimeout *Duration `json:"messageTimeout,omitempty"`

	// maxAge is the age at which a message without any attempt is deleted, 1m to 87600h. Unset means never.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('87600h')",message="maxAge must be a duration from 1m to 87600h"
	MaxAge *Duration `json:"maxAge,omitempty"`

	// results makes the queue keep the state of each job, its progress and its result, which producers
	// can read by the ID of the job, and makes running jobs cancelable. Default: no states are kept.
	// +optional
	Results *Results `json:"results,omitempty"`

	// storage defines how the broker stores the queue: its messages, its dead letters, its rate limit
	// and the states of its jobs. It applies to NATS.
	// +optional
	Storage *QueueStorage `json:"storage,omitempty"`

	// deletionPolicy defines what happens to the queue on the broker when the Queue is deleted.
	// Retain leaves the queue with its messages. Drain rejects new messages, waits until the queue
	// is empty, and deletes it. Purge deletes the queue with its messages. Default: Retain.
	// +optional
	// +kubebuilder:default=Retain
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// drift defines what happens when someone else changes the configuration of the queue on the
	// broker. Correct restores it. Warn only reports it in the condition ConfigSynced. Default:
	// Correct.
	// +optional
	// +kubebuilder:default=Correct
	Drift DriftPolicy `json:"drift,omitempty"`
}

// QueueSettings are the settings of a Queue for which Policies have defaults. They apply as a whole, except retry and
// deadLetter, of which each field applies on its own.
type QueueSettings struct {
	// broker that holds the queue. With another broker, the Queue gets a new, empty queue there; the old queue stays.
	// Defaults to the broker of the operator.
	// +optional
	Broker *Broker `json:"broker,omitempty"`

	// rateLimit limits how many messages all workers together start. Unset means no limit.
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`

	// retry of failed messages. Defaults to 4 retries, a backoff of 1s, a maxBackoff of 10m, or backoff if it is longer,
	// and a factor of 2. Each delay varies by 20 percent at random.
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// deadLetter is what happens to messages that exhaust their attempts.
	// +optional
	DeadLetter *DeadLetter `json:"deadLetter,omitempty"`
}

// QueuePriority is one of a queue's priorities.
type QueuePriority struct {
	// name by which producers select the priority: at most 32 lower-case letters, digits and
	// dashes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// weight of the priority, 1 to 100. The number of messages that workers take from a priority is
	// proportional to its weight. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
}

// RateLimit limits how many messages workers start in a period.
type RateLimit struct {
	// limit is the number of messages per period, 1 to 1000000.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Limit int32 `json:"limit"`

	// per is the period, 1s to 24h. Default: 1s.
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="per must be a duration from 1s to 24h"
	Per *Duration `json:"per,omitempty"`

	// burst is the number of messages that can start at once after an idle time, 1 to 1000000.
	// Default: limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Burst *int32 `json:"burst,omitempty"`
}

// DeadLetter defines what happens to messages that exhaust their attempts or that a worker
// rejects. A dead letter keeps its payload, its last error, its number of attempts and its origin.
//
// +kubebuilder:validation:XValidation:rule="(has(self.onDelete) && self.onDelete == 'Move') == has(self.moveToRef)",message="moveToRef is required with onDelete: Move, and not allowed otherwise",fieldPath=".moveToRef"
type DeadLetter struct {
	// enabled keeps dead letters. If false, the messages are deleted. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// maxEntries is the maximum number of dead letters. Beyond it, the oldest are deleted. Default:
	// 0, no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxEntries *int64 `json:"maxEntries,omitempty"`

	// retention is the age at which dead letters are deleted, 0s to 87600h. Default: 0s, never.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('87600h')",message="retention must be a duration from 0s to 87600h"
	Retention *Duration `json:"retention,omitempty"`

	// alertThreshold is the number of dead letters from which the condition DeadLettersPresent is
	// True, at least 1. Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	AlertThreshold *int64 `json:"alertThreshold,omitempty"`

	// onDelete is what happens to dead letters when the Queue is deleted. Block keeps the Queue until it has none, Move
	// moves them to moveToRef, Purge deletes them. Defaults to Block.
	// +optional
	OnDelete DeadLetterAction `json:"onDelete,omitempty"`

	// moveToRef is the Queue that receives the dead letters with onDelete Move. It must be on the same broker.
	// +optional
	MoveToRef *LocalReference `json:"moveToRef,omitempty"`
}

// Results defines how long the states of single jobs are kept.
type Results struct {
	// retention is how long the state of a job is kept after its last change, and so its result, 1m to
	// 8760h. It must not be shorter than lease. With asynq, it applies to jobs that are sent later.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="retention must be a duration from 1m to 8760h"
	Retention Duration `json:"retention"`

	// maxBytes is the size of all states on each server, from which on the oldest are discarded, 1048576
	// (1 MiB) to 1099511627776 (1 TiB). It applies to NATS. Default: 1073741824 (1 GiB).
	// +optional
	// +kubebuilder:validation:Minimum=1048576
	// +kubebuilder:validation:Maximum=1099511627776
	MaxBytes *int64 `json:"maxBytes,omitempty"`
}

// QueueStorage defines how the broker stores a queue.
type QueueStorage struct {
	// replicas is the number of servers that store each message: 1, 3 or 5. With 3 replicas no message
	// is lost with one server, with 5 none with two. A number that is set is required: while the broker
	// refuses it, a new queue is not created, and an existing queue keeps the replicas that it has.
	// Default: 3, and 1 while the broker refuses 3. The condition Replicated shows the result.
	// +optional
	// +kubebuilder:validation:Enum=1;3;5
	Replicas *int32 `json:"replicas,omitempty"`

	// type is where each server stores the queue. File is a disk. Memory is faster, and loses the queue
	// when all its servers restart. Immutable. Default: File.
	// +optional
	Type StorageType `json:"type,omitempty"`

	// placement selects the servers that store the queue. An empty placement, {}, allows every server.
	// Default: the servers that the broker selects; a placement that someone set on the broker is kept.
	// +optional
	Placement *QueuePlacement `json:"placement,omitempty"`
}

// QueuePlacement selects the servers that store a queue. A server must meet all conditions.
type QueuePlacement struct {
	// cluster is the name of the NATS cluster, at most 63 characters. Default: the cluster that the
	// operator is connected to.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[!-~]+$`
	Cluster string `json:"cluster,omitempty"`

	// tags that a server must have, at most 8, each of at most 63 characters. A server must not have a
	// tag that is written after an exclamation mark. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[!-~]+$`
	Tags []string `json:"tags,omitempty"`
}

// StorageType is where the servers of a broker store a queue.
// +kubebuilder:validation:Enum=File;Memory
type StorageType string

// The types of storage.
const (
	StorageFile   StorageType = "File"
	StorageMemory StorageType = "Memory"
)

// DeletionPolicy defines what happens to a queue on the broker when its Queue is deleted.
// +kubebuilder:validation:Enum=Retain;Drain;Purge
type DeletionPolicy string

// The deletion policies.
const (
	DeletionRetain DeletionPolicy = "Retain"
	DeletionDrain  DeletionPolicy = "Drain"
	DeletionPurge  DeletionPolicy = "Purge"
)

// DeadLetterAction defines what happens to the dead letters of a deleted Queue.
// +kubebuilder:validation:Enum=Block;Move;Purge
type DeadLetterAction string

// The dead-letter actions.
const (
	DeadLetterBlock DeadLetterAction = "Block"
	DeadLetterMove  DeadLetterAction = "Move"
	DeadLetterPurge DeadLetterAction = "Purge"
)

// DriftPolicy defines what happens when someone else changes a queue on the broker.
// +kubebuilder:validation:Enum=Correct;Warn
type DriftPolicy string

// The drift policies.
const (
	DriftCorrect DriftPolicy = "Correct"
	DriftWarn    DriftPolicy = "Warn"
)
