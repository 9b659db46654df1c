package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QueueFinalizer keeps a deleted Queue until its deletionPolicy is carried out on the broker.
const QueueFinalizer = Prefix + "queue"

// Queue is a work queue on a message broker, which stores the messages under the name of the queue.
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

	// spec is the desired configuration. Every field has a default.
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

// QueueSpec is the desired configuration of a queue. Policies that select the Queue set defaults; status.effective
// shows the result.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxInFlight) || !has(self.maxBacklog) || self.maxInFlight <= self.maxBacklog",message="maxInFlight must not be greater than maxBacklog",fieldPath=".maxInFlight"
// +kubebuilder:validation:XValidation:rule="!has(self.results) || !has(self.lease) || duration(self.results.retention) >= duration(self.lease)",message="retention must not be shorter than lease: a running job is reported several times in each lease",fieldPath=".results.retention"
// +kubebuilder:validation:XValidation:rule="!has(self.strictPriority) || !self.strictPriority || !has(self.priorities) || self.priorities.all(p, self.priorities.exists_one(q, q.weight == p.weight))",message="with strictPriority the weights define the order: each priority needs another weight",fieldPath=".priorities"
// +kubebuilder:validation:XValidation:rule="(has(self.storage) && has(self.storage.type) ? self.storage.type : 'File') == (has(oldSelf.storage) && has(oldSelf.storage.type) ? oldSelf.storage.type : 'File')",message="type is immutable: the broker cannot change where it stores a queue",fieldPath=".storage.type"
type QueueSpec struct {
	QueueSettings `json:",inline"`

	// name of the queue on the broker: at most 63 lower-case letters, digits and dashes. Immutable. Defaults to a name
	// with the namespace, metadata.name and an ID of the cluster: see status.name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// priorities of messages, 1 to 8. Producers select one by name, or else the one named default. Workers take
	// messages in proportion to the weights. Defaults to one priority named default.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:default={{name: "default", weight: 1}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Priorities []QueuePriority `json:"priorities,omitempty"`

	// strictPriority makes workers take messages of a priority only while all of greater weight are empty. Defaults to
	// false.
	// +optional
	StrictPriority bool `json:"strictPriority,omitempty"`

	// suspend stops the delivery of messages to workers, which finish those in flight. Producers can still send.
	// Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// maxInFlight is how many messages all workers together process at a time, 1 to 1000000. Each priority gets a
	// share by weight. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`

	// maxBacklog is the number of messages, including those in flight, from which the queue rejects new messages.
	// Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxBacklog *int64 `json:"maxBacklog,omitempty"`

	// lease is how long a worker may hold a message without extending the lease, 5s to 1h, before the message is
	// delivered again. Defaults to 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="lease must be a duration from 5s to 1h"
	Lease *Duration `json:"lease,omitempty"`

	// messageTimeout is how long a handler may take for a message, 1s to 24h. The header Yardmaster-Timeout overrides
	// it. Unset means no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="messageTimeout must be a duration from 1s to 24h"
	MessageTimeout *Duration `json:"messageTimeout,omitempty"`

	// maxAge is the age at which a message is deleted, whatever its attempts, 1m to 87600h. Unset means never.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('87600h')",message="maxAge must be a duration from 1m to 87600h"
	MaxAge *Duration `json:"maxAge,omitempty"`

	// results keeps the state, progress and result of each job, and makes running jobs cancelable. Unset means that
	// none are kept.
	// +optional
	Results *Results `json:"results,omitempty"`

	// storage is how NATS stores messages, dead letters, the rate limit and states of jobs.
	// +optional
	Storage *QueueStorage `json:"storage,omitempty"`

	// deletionPolicy is what happens to the queue of a deleted Queue. Retain keeps it, Drain rejects new messages and
	// deletes it once it is empty, Purge deletes it with its messages. Defaults to Retain.
	// +optional
	// +kubebuilder:default=Retain
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// drift is what happens when someone else changes the queue on the broker. Correct restores it, Warn reports it in
	// the condition ConfigSynced. Defaults to Correct.
	// +optional
	// +kubebuilder:default=Correct
	Drift DriftPolicy `json:"drift,omitempty"`
}

// QueueSettings are the settings of a Queue for which Policies have defaults. They apply as a whole, except retry and
// deadLetter, of which each field applies on its own.
type QueueSettings struct {
	// broker that holds the queue. With another broker, the queue starts empty. Defaults to the broker of the
	// operator.
	// +optional
	Broker *Broker `json:"broker,omitempty"`

	// rateLimit of all workers together. Unset means no limit.
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`

	// retry of failed messages. Defaults to a limit of 4, a backoff of 1s, a maxBackoff of 10m and a factor of 2.
	// Delays vary by 20 percent.
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// deadLetter is what happens to messages that exhaust their attempts.
	// +optional
	DeadLetter *DeadLetter `json:"deadLetter,omitempty"`
}

// QueuePriority is one of a queue's priorities.
type QueuePriority struct {
	// name of the priority: at most 32 lower-case letters, digits and dashes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	Share `json:",inline"`
}

// Share is how much of the workers a queue or a priority gets.
type Share struct {
	// weight relative to the others, 1 to 100. Defaults to 1.
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

	// per is the period, 1s to 24h. Defaults to 1s.
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="per must be a duration from 1s to 24h"
	Per *Duration `json:"per,omitempty"`

	// burst is how many messages can start at once after an idle time, 1 to 1000000. Defaults to limit.
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
	// maxEntries is the number of dead letters beyond which the oldest are deleted. With 0 none are kept. Unset means no
	// limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxEntries *int64 `json:"maxEntries,omitempty"`

	// retention is the age at which dead letters are deleted, 0s to 87600h; 0s for never. Defaults to 0s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('87600h')",message="retention must be a duration from 0s to 87600h"
	Retention *Duration `json:"retention,omitempty"`

	// alertThreshold is the number of dead letters from which the condition DeadLettersPresent is True. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	AlertThreshold *int64 `json:"alertThreshold,omitempty"`

	// onDelete is what happens to dead letters with the deletion of the Queue. Block keeps the Queue until it has
	// none, Move moves them to moveToRef, Purge deletes them. Defaults to Block.
	// +optional
	OnDelete DeadLetterAction `json:"onDelete,omitempty"`

	// moveToRef is the Queue, on the same broker, that receives them with onDelete Move.
	// +optional
	MoveToRef *LocalReference `json:"moveToRef,omitempty"`
}

// Results defines how long the states of single jobs are kept.
type Results struct {
	// retention is how long the state of a job is kept after its last change, 1m to 8760h, and at least lease.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="retention must be a duration from 1m to 8760h"
	Retention Duration `json:"retention"`

	// maxBytes is the size of all states on NATS, beyond which the oldest are deleted, 1048576 to 1099511627776.
	// Defaults to 1073741824.
	// +optional
	// +kubebuilder:validation:Minimum=1048576
	// +kubebuilder:validation:Maximum=1099511627776
	MaxBytes *int64 `json:"maxBytes,omitempty"`
}

// QueueStorage defines how the broker stores a queue.
type QueueStorage struct {
	// replicas is the number of servers that store each message: 1, 3 or 5. A number that the broker refuses is an
	// error. Defaults to 3, or 1 while the broker refuses 3.
	// +optional
	// +kubebuilder:validation:Enum=1;3;5
	Replicas *int32 `json:"replicas,omitempty"`

	// type is File, on disk, or Memory, which is lost when all servers restart. Immutable. Defaults to File.
	// +optional
	Type StorageType `json:"type,omitempty"`

	// placement selects the servers; {} allows every server. Unset keeps the placement that the broker has.
	// +optional
	Placement *QueuePlacement `json:"placement,omitempty"`
}

// QueuePlacement selects the servers that store a queue. A server must meet all conditions.
type QueuePlacement struct {
	// cluster is the name of the NATS cluster. Defaults to the cluster that the operator is connected to.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[!-~]+$`
	Cluster string `json:"cluster,omitempty"`

	// tags that each server must have, or must not have with ! before it. At most 8.
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
