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
	// Pool as last read. It may be outdated: the status is written only over this version.
	Pool *v1alpha1.WorkerPool
	// Policies that select the pool.
	Policies policy.Selection
	// NamespacePools are the WorkerPools of the namespace, this one included. They are needed
	// only if the pool shares a replica budget.
	NamespacePools []v1alpha1.WorkerPool
	// Problem that prevents scaling, such as a missing Queue; nil if none exists.
	Problem *decision.Problem
	// Refusal of an object by the API server the last time the operator acted; nil if it
	// accepted all objects.
	Refusal *decision.Refusal
	// Config that the workers read.
	Config WorkerConfig
	// Operator settings that the workers depend on.
	Operator OperatorSettings
	// NetworkPolicies of the namespace, without their rules.
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
	// Memory that the last scaling decision returned.
	Memory scaling.Memory
	// Rollout is the memory of the rollout that the last decision returned.
	Rollout RolloutMemory
	// BusyTimes that the last decision returned.
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
	// Connection has the settings in the file that workers read only when they start; empty without any.
	Connection string
	// Secrets that the file refers to, by the directory they are mounted in.
	Secrets map[string]MountedSecret
}

// MountedSecret selects the keys of a Secret that are mounted as files; without keys, all are.
type MountedSecret struct {
	Secret string
	Keys   []string
}

// OperatorSettings are settings of the operator that workers depend on.
type OperatorSettings struct {
	// Image of the operator, which contains the runtime for drain mode Sidecar. If it is
	// empty, that mode is refused.
	Image string
	// PodMonitors is true if the cluster has the PodMonitor kind.
	PodMonitors bool
	// Namespace of the operator; empty if it is unknown, for example outside a cluster.
	Namespace string
	// Admin is how workers recognize the operator and the kubelet; nil if the operator has no key.
	Admin *AdminAccess
	// OmitObjectNames leaves the names of the pool and its queues out of the workers' metrics.
	OmitObjectNames bool
}

// QueueLimits are limits that queues impose on their workers together; 0 means unlimited.
type QueueLimits struct {
	RatePerSecond float64
	MaxInFlight   int64
}

// QueueStats are the stats of all queues of a pool together.
type QueueStats struct {
	// BacklogStats of the broker. Decide adds what the workers report.
	scaling.BacklogStats
	// InFlight is the number of messages that the broker delivered, to any client, and that are not
	// acknowledged. It is unknown if InFlightKnown is false.
	InFlight      int64
	InFlightKnown bool
	// RetriesInFlight is true if InFlight includes messages that wait for a retry. They count as backlog
	// when they are due.
	RetriesInFlight bool
	// InFlightMayWait is true if InFlight, which the workers do not report in full, includes messages that
	// wait in a worker, or for another delivery that nothing announces.
	InFlightMayWait bool
	// Lease is the longest time that a worker may hold a message before redelivery.
	Lease time.Duration
	// Delayed is the number of messages that are due later than those of Backlog.
	Delayed int64
	// WaitP95 is the 95th percentile of recent waiting times; nil if it is unknown.
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
	// TerminationGrace is the grace period of its Pods; 0 if it is unknown.
	TerminationGrace time.Duration
	Created          time.Time
	// Ordered is true for a StatefulSet, which removes the worker with the highest ordinal
	// first.
	Ordered bool
	// Replicas in the spec of the Deployment or StatefulSet.
	Replicas int32
	// CreationFailure is the message of the error that prevents the creation of its Pods;
	// empty if none exists.
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
	// WaitingReason is the reason why a container does not start, such as ImagePullBackOff.
	WaitingReason string
	// Terminating is true once the Pod is deleted.
	Terminating bool
	// DrainingSince, IdleSince and RemovableSince are the times written on the Pod: when the
	// worker was selected for draining, reported nothing in flight, and became removable.
	DrainingSince, IdleSince, RemovableSince time.Time
	Protection                               Protection
	// Stats that the worker reports; nil if it did not answer.
	Stats *WorkerStats
}

// IsReady reports whether the worker's readiness probe succeeds, and the worker does not report that
// it is not attached to its queues.
func (w *Worker) IsReady() bool {
	return !w.ReadySince.IsZero() && (w.Stats == nil || w.Stats.Attached == nil || *w.Stats.Attached)
}

// WorkerStats are the stats that a worker reports.
type WorkerStats struct {
	// Attached is true if the worker takes messages from each queue of the pool; nil if it does not
	// report that.
	Attached *bool
	// Draining is true once the worker takes no more messages.
	Draining bool
	// Drained is true once it also has none in flight.
	Drained bool
	// InFlight messages are being handled, Prefetched ones are not started yet.
	InFlight, Prefetched int64
	// Succeeded and Failed count messages since the worker started; nil if it does not count.
	Succeeded, Failed *int64
	// Recent attempts; nil if the worker does not count them.
	Recent *RecentAttempts
}

// RecentAttempts are the attempts that ended in the last minutes.
type RecentAttempts struct {
	// Count of the attempts, the time that they took together, and the number of those whose message returned
	// to its queue for another attempt. They decay with RecentTime.
	Count    float64
	Seconds  float64
	Returned float64
}

// RecentTime is the time constant with which RecentAttempts decay.
const RecentTime = 2 * time.Minute

// addWorkers returns the stats of the queues with what the workers know better than the broker: which of the
// delivered messages run, and how long attempts take. Prefetched messages wait, and so are backlog.
//
// The rest of what the broker counts as delivered waits for a retry, or belongs to other clients.
func (s *QueueStats) addWorkers(workers []Worker, concurrency int32) *QueueStats {
	if s == nil {
		return nil
	}
	stats := new(*s)
	var silent, prefetched int64
	for i := range workers {
		switch w := &workers[i]; {
		case w.Stats != nil:
			stats.Running += max(w.Stats.InFlight, 0)
			prefetched += max(w.Stats.Prefetched, 0)
		case w.Running && !w.Terminating && w.RemovableSince.IsZero():
			silent++ // the messages of one that stops need no other worker until their lease is over
		}
	}
	if s.InFlightKnown {
		stats.Running = min(stats.Running, s.InFlight)
		prefetched = min(prefetched, s.InFlight-stats.Running)
		// A worker that does not answer may run as many as its concurrency.
		unreported := s.InFlight - stats.Running - prefetched
		assumed := min(unreported, silent*int64(concurrency))
		stats.Running += assumed
		stats.addUnaccounted(unreported-assumed, silent > 0)
	}
	stats.Backlog += prefetched
	stats.addRecentAttempts(workers)
	return stats
}

// addUnaccounted adds messages that the broker delivered, and that no worker reports or may run.
func (s *QueueStats) addUnaccounted(count int64, hasSilent bool) {
	switch {
	case s.RetriesInFlight: // they are backlog when they are due
	case s.InFlightMayWait && hasSilent:
		// A worker that does not answer may hold any number of them.
		s.Backlog += count
	default:
		s.Unaccounted = count
		// Some may be due. If all handlers are busy, only more of them can show it.
		s.RetriesDue = s.RetriesDue || s.InFlightMayWait && count > 0
	}
}

// maxServiceTime bounds what workers report.
const maxServiceTime = 24 * time.Hour

// addRecentAttempts sets the service time and the rate of returned messages that the workers report.
func (s *QueueStats) addRecentAttempts(workers []Worker) {
	var sum RecentAttempts
	for i := range workers {
		if w := workers[i].Stats; w != nil && w.Recent != nil {
			sum.Count += w.Recent.Count
			sum.Seconds += w.Recent.Seconds
			sum.Returned += w.Recent.Returned
		}
	}
	if !(sum.Count >= 1 && sum.Seconds > 0) { // also if one is no number
		return
	}
	seconds := min(sum.Seconds/sum.Count, maxServiceTime.Seconds())
	s.ServiceTime = time.Duration(seconds * float64(time.Second))
	// Returned messages were running. So if fewer run now, fewer return: a burst of retries that are due
	// much later needs no workers meanwhile.
	s.ReturnRate = min(sum.Returned/RecentTime.Seconds(), float64(s.Running)/seconds)
}
