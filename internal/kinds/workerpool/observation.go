package workerpool

import (
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// Observation is the input of a decision. Decide does not change it.
type Observation struct {
	// Pool as last read. It may be stale: the status is written only over this version.
	Pool *v1alpha1.WorkerPool
	// Policies that select the pool.
	Policies policy.Selection
	// NamespacePools are all WorkerPools of the namespace, if the pool shares a replica budget.
	NamespacePools []v1alpha1.WorkerPool
	// Problem that prevents scaling, such as a missing Queue; nil if none exists.
	Problem *decision.Problem
	// Refusal by the API server when the operator last acted, or nil.
	Refusal *decision.Refusal
	// Config of the workers.
	Config WorkerConfig
	// Operator settings that the workers depend on.
	Operator OperatorSettings
	// NetworkPolicies of the namespace. Their rules are not read.
	NetworkPolicies []networkingv1.NetworkPolicy
	// Revisions that exist, in any order.
	Revisions []Revision
	// Workers that exist, in any order.
	Workers []Worker
	// Stats of the queues; nil if they could not be read.
	Stats *QueueStats
	// StatsError is the reason why Stats is nil.
	StatsError string
	// Limits that the queues impose on all workers together.
	Limits QueueLimits
	// Memory of the last scaling decision.
	Memory scaling.Memory
	// Rollout is the last decision's memory of the rollout.
	Rollout RolloutMemory
	// Work is the last decision's memory of what workers finish.
	Work WorkMemory
	// BusyTimes of the last decision.
	BusyTimes BusyTimes
	// Now is the time of the decision.
	Now time.Time
}

// WorkerConfig is the configuration that workers read. Except for Secrets and Connection, a change of it
// does not create a revision.
type WorkerConfig struct {
	// File is the content of the workers' configuration file; empty for a pool with a source.
	File string
	// Queues is the value of the environment variable YARDMASTER_QUEUES.
	Queues string
	// Connection has the settings in File that workers read only when they start; empty without any.
	Connection string
	// Secrets that File refers to, by the directory in which they are mounted.
	Secrets map[string]MountedSecret
}

// MountedSecret selects the keys of a Secret that are mounted as files: all if Keys is empty.
type MountedSecret struct {
	Secret string
	Keys   []string
}

// OperatorSettings are settings of the operator that workers depend on.
type OperatorSettings struct {
	// Image of the operator, which contains the runtime for drain mode Sidecar. If it is empty, this mode is refused.
	Image string
	// Namespace of the operator; empty if unknown, for example outside a cluster.
	Namespace string
	// Admin has the keys with which workers authenticate the operator and the kubelet; nil without a key.
	Admin *AdminAccess
	// OmitObjectNames omits the names of the pool and its queues in the workers' metrics.
	OmitObjectNames bool
}

// QueueLimits are limits that queues impose on their workers together; 0 means unlimited.
type QueueLimits struct {
	RatePerSecond float64
	MaxInFlight   int64
}

// QueueStats are the stats of all queues of a pool together.
type QueueStats struct {
	// BacklogStats of the broker. Decide adds the reports of workers.
	scaling.BacklogStats
	// Waiting is the number of messages that wait for a worker, as the broker counts them, and of those that workers gave back. Backlog
	// differs from it by messages that are prefetched, and by those of suspended queues.
	Waiting int64
	// Returned is the number of messages that workers gave back, a part of Waiting.
	Returned int64
	// InFlight is the number of messages that the broker delivered to any client and that are not acknowledged. It is
	// unknown if InFlightKnown is false.
	InFlight      int64
	InFlightKnown bool
	// RetriesInFlight is true if InFlight includes messages that wait for a retry, which count as backlog when they are
	// due.
	RetriesInFlight bool
	// InFlightMayWait is true if InFlight may include messages that workers do not report, and that wait in a worker or
	// for another delivery without notice.
	InFlightMayWait bool
	// Lease is the longest time that a worker may hold a message before redelivery.
	Lease time.Duration
	// Delayed is the number of messages that are not due yet.
	Delayed int64
	// WaitP95 is the 95th percentile of recent waiting times; nil if unknown.
	WaitP95 *time.Duration
}

// Revision is a Deployment or StatefulSet of the pool.
type Revision struct {
	Name, Hash     string
	Version, Image string
	// SidecarImage is the image of its sidecar; empty if it has none.
	SidecarImage string
	// PreStopSecret of its Pods; empty if their admin API has no protection.
	PreStopSecret string
	// TerminationGrace is the grace period of its Pods; 0 if unknown.
	TerminationGrace time.Duration
	Created          time.Time
	// Ordered is true for a StatefulSet, which removes the highest ordinal first.
	Ordered bool
	// Replicas in the spec of the Deployment or StatefulSet.
	Replicas int32
	// CreationFailure is the error that prevents the creation of its Pods; empty if none does.
	CreationFailure string
	// History of its rollout.
	History History
}

// Worker is a Pod of the pool.
type Worker struct {
	Name string
	// Revision is the hash of the worker's revision.
	Revision string
	Created  time.Time
	// Ordinal in its StatefulSet.
	Ordinal int32
	// Assigned is true once the Pod has a node, and Pending until its containers start.
	Assigned, Pending bool
	// ReadySince is when the Pod became ready; zero if it is not.
	ReadySince time.Time
	// Running is true while its worker container runs.
	Running bool
	// StartFailure is why a container does not start by itself; nil if all do.
	StartFailure *decision.Problem
	// Terminating is true once the Pod is deleted.
	Terminating bool
	// DrainingSince, IdleSince and RemovableSince are the times, written on the Pod, when the worker was selected for
	// draining, reported no messages in flight, and became removable.
	DrainingSince, IdleSince, RemovableSince time.Time
	Protection                               Protection
	// Stats that the worker reports; nil if it did not answer.
	Stats *WorkerStats
}

// WorkerStats are the stats that a worker reports.
type WorkerStats struct {
	// Attached is true if the worker takes messages from each queue of the pool; nil if it does not report it.
	Attached *bool
	// Draining is true once the worker takes no messages.
	Draining bool
	// Drained is true once it also has no messages in flight.
	Drained bool
	// InFlight messages are being handled, Prefetched messages not yet.
	InFlight, Prefetched int64
	// Succeeded, Failed and Snoozed count attempts since the worker started; nil if it does not count. Snoozed ones gave the message back.
	Succeeded, Failed, Snoozed *int64
	// Returned is the number of messages that the worker gave back and that are due within a minute.
	Returned int64
	// Unavailable is why the worker takes no messages although it could; empty if it takes them.
	Unavailable string
	// BreakerOpen is true if the circuit breaker of a queue is not closed.
	BreakerOpen bool
	// Recent attempts; nil if the worker does not count them.
	Recent *RecentAttempts
}

// RecentAttempts are the attempts that ended in the last minutes.
type RecentAttempts struct {
	// Count of the attempts, their total time, and how many Returned their message to the queue for another attempt.
	// All decay with RecentTime.
	Count    float64
	Seconds  float64
	Returned float64
}

// RecentTime is the time constant with which RecentAttempts decay.
const RecentTime = 2 * time.Minute
