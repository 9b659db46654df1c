package workerpool

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
)

// QueueProblem returns why a pool cannot use the Queue with this index in spec.queues; nil if it can. A pool must not
// see the stats and messages of a queue that another Queue owns.
func QueueProblem(index int, q *v1alpha1.Queue) *decision.Problem {
	switch {
	case q.Status.Name == "":
		return &decision.Problem{Reason: v1alpha1.ReasonQueueNotReady, Message: fmt.Sprintf(
			"spec.queues[%d]: Queue %q has no name on its broker yet", index, q.Name)}
	case queue.HasOtherOwner(q):
		return &decision.Problem{Reason: v1alpha1.ReasonOwnedByOtherQueue, Message: fmt.Sprintf(
			"spec.queues[%d]: Queue %q does not own its queue on the broker; see its condition ConfigSynced", index, q.Name)}
	}
	return nil
}

// QueueReading is the observed state of a queue of the pool.
type QueueReading struct {
	// Queue as it is configured on the broker.
	Queue broker.QueueConfig
	// Stats of the queue.
	Stats broker.QueueStats
	// WaitP95 is the 95th percentile of recent waiting times; nil if unknown.
	WaitP95 *time.Duration
}

// CombineReadings returns the stats of all queues together.
func CombineReadings(readings []QueueReading) *QueueStats {
	total := &QueueStats{InFlightKnown: true}
	arrived, finished := int64(0), int64(0)
	for i := range readings {
		q, stats := &readings[i].Queue, &readings[i].Stats
		total.Waiting += stats.Ready
		if !q.Paused { // workers get no messages from a paused queue
			total.Backlog += stats.Ready
			if stats.RetryDue {
				total.Backlog, total.Waiting, total.RetriesDue = total.Backlog+1, total.Waiting+1, true
			}
			if !stats.OldestReadyTime.IsZero() {
				total.OldestAge = max(total.OldestAge, stats.MeasuredTime.Sub(stats.OldestReadyTime))
			}
		}
		total.InFlight += stats.InFlight
		total.RetriesInFlight = total.RetriesInFlight || stats.RetriesInFlight
		total.Delayed += stats.Delayed
		total.Lease = max(total.Lease, q.Lease)
		arrivals := int64(min(stats.TotalArrivals, 1<<62))
		arrived += arrivals
		finished += max(0, arrivals-stats.Ready-stats.InFlight-stats.Delayed+stats.Postponed)
		if wait := readings[i].WaitP95; wait != nil && (total.WaitP95 == nil || *wait > *total.WaitP95) {
			total.WaitP95 = wait
		}
	}
	total.Arrived, total.Finished = &arrived, &finished
	return total
}

// CombineLimits returns the limits of all queues together. A limit applies only if each queue has it.
func CombineLimits(queues []broker.QueueConfig) QueueLimits {
	var total QueueLimits
	rateLimited, inFlightLimited := true, true
	for i := range queues {
		q := &queues[i]
		if q.RateLimit != nil {
			total.RatePerSecond += float64(q.RateLimit.Limit) / q.RateLimit.Per.Seconds()
		}
		total.MaxInFlight += int64(q.MaxInFlight)
		rateLimited, inFlightLimited = rateLimited && q.RateLimit != nil, inFlightLimited && q.MaxInFlight > 0
	}
	if !rateLimited {
		total.RatePerSecond = 0
	}
	if !inFlightLimited {
		total.MaxInFlight = 0
	}
	return total
}

// addWorkers returns the stats of the queues with the reports of workers: which of the delivered messages run, and how
// long attempts take. Prefetched messages count as backlog, and so do those that workers gave back to have them delivered again soon.
//
// Other delivered messages wait for a retry, or belong to other clients.
func (s *QueueStats) addWorkers(workers []Worker, concurrency int32) *QueueStats {
	if s == nil {
		return nil
	}
	stats := new(*s)
	var silent, prefetched, returned int64
	for i := range workers {
		switch w := &workers[i]; {
		case w.Stats != nil:
			stats.Running += max(w.Stats.InFlight, 0)
			prefetched += max(w.Stats.Prefetched, 0)
			returned += max(w.Stats.Returned, 0)
		case w.Running && !w.Terminating && w.RemovableSince.IsZero():
			silent++ // the messages of a stopping worker need no other worker until their lease ends
		}
	}
	if s.InFlightKnown {
		stats.Running = min(stats.Running, s.InFlight)
		prefetched = min(prefetched, s.InFlight-stats.Running)
		// A worker that does not answer may run as many messages as its concurrency.
		unreported := s.InFlight - stats.Running - prefetched
		assumed := min(unreported, silent*int64(concurrency))
		stats.Running += assumed
		// The broker counts a message that was given back as delivered, or as delayed.
		returned = min(returned, unreported-assumed+s.Delayed)
		switch unaccounted := max(0, unreported-assumed-returned); {
		case s.RetriesInFlight: // they count as backlog when they are due
		case s.InFlightMayWait && silent > 0:
			// A worker that does not answer may hold any number of messages.
			stats.Backlog += unaccounted
		default:
			stats.Unaccounted = unaccounted
			// Some may be due. While all handlers are busy, only more handlers can show it.
			stats.RetriesDue = s.RetriesDue || s.InFlightMayWait && unaccounted > 0
		}
	}
	stats.Returned = returned
	stats.Waiting += returned
	stats.Backlog += prefetched + returned
	stats.addRecentAttempts(workers)
	return stats
}

// maxServiceTime is the maximum service time that is accepted from workers.
const maxServiceTime = 24 * time.Hour

func (s *QueueStats) addRecentAttempts(workers []Worker) {
	var sum RecentAttempts
	for i := range workers {
		if w := workers[i].Stats; w != nil && w.Recent != nil {
			sum.Count += w.Recent.Count
			sum.Seconds += w.Recent.Seconds
			sum.Returned += w.Recent.Returned
		}
	}
	if !(sum.Count >= 1 && sum.Seconds > 0) { // also if any is NaN
		return
	}
	seconds := min(sum.Seconds/sum.Count, maxServiceTime.Seconds())
	s.ServiceTime = time.Duration(seconds * float64(time.Second))
	// Only running messages can return: a burst of retries that are due much later needs no workers meanwhile.
	s.ReturnRate = min(sum.Returned/RecentTime.Seconds(), float64(s.Running)/seconds)
}
