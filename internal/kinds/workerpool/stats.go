package workerpool

import "time"

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
