package scheduler

import "github.com/yardmaster/yardmaster/internal/broker"

// MaxPrefetch bounds the number of prefetched messages if the configuration does not.
const MaxPrefetch = 2048

// minBatchDivisor: while a buffer has messages, a request for less than a quarter of the target is not worth its round trip.
const minBatchDivisor = 4

// FetchRequest is a request for messages that a fetcher sends to the broker.
type FetchRequest struct {
	// Messages is the maximum number of messages to fetch.
	Messages int
	// Poll: the broker may have no messages, so the request waits for the first message.
	Poll bool
}

// NextRequest waits until messages may be fetched into the buffer. It returns false when fetching ends for good.
func (s *Scheduler) NextRequest(b *PriorityBuffer) (FetchRequest, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed || b.queue.retired {
			return FetchRequest{}, false
		}
		if request := s.allowedRequest(b); request.Messages > 0 {
			s.activeRequests++
			if request.Poll {
				b.isPolling = true
			} else {
				s.addRequested(b, request.Messages)
			}
			return request, true
		}
		s.capacityFreed.Wait()
	}
}

// allowedRequest returns the request that may be sent for the buffer now; without Messages, no request.
func (s *Scheduler) allowedRequest(b *PriorityBuffer) FetchRequest {
	if s.draining.Load() || s.held || s.suspect != nil || b.isOutranked() {
		return FetchRequest{}
	}
	capacity := s.freeCapacity(b)
	if capacity <= 0 {
		return FetchRequest{}
	}
	if !b.hasBacklog() {
		if b.isPolling || b.requested > 0 {
			return FetchRequest{}
		}
		return FetchRequest{Messages: 1, Poll: true}
	}
	// If the capacity is too small for every buffer, it goes to the buffer whose turn it is.
	if _, next := s.selectBuffer(func(b *PriorityBuffer) bool {
		return b.hasBacklog() && !b.isOutranked() && s.remainingShare(b) > 0
	}); next != b {
		return FetchRequest{}
	}
	messages := min(capacity, s.remainingShare(b), MaxPrefetch)
	if b.startable()+b.requested > 0 && messages < s.targetInFlight()/minBatchDivisor {
		return FetchRequest{}
	}
	return FetchRequest{Messages: messages}
}

// freeCapacity returns the number of further messages that may be fetched into the buffer.
func (s *Scheduler) freeCapacity(b *PriorityBuffer) int {
	q := b.queue
	occupied := s.running + s.prefetched + s.requested
	capacity := s.targetInFlight() - occupied + b.outrankedMessages() + s.waitingForSlots() + min(s.heldForKinds(), maxHeldForKinds)
	capacity = min(capacity, s.limits.MaxInFlight-occupied, q.breaker.AdmissionLimit(s.now())-q.startable()-q.requested)
	if q.isRateLimited() {
		capacity = min(capacity, q.slotPrefetch-q.startable()-q.requested)
	}
	return capacity
}

// waitingForSlots returns the number of prefetched messages that wait for their queue's rate limit. Meanwhile, other queues may use the
// capacity.
func (s *Scheduler) waitingForSlots() int {
	sum := 0
	for _, q := range s.queues {
		if q.isRateLimited() {
			sum += max(0, q.startable()-q.openSlots)
		}
	}
	return sum
}

// remainingShare returns the number of further messages that the buffer may have according to its weight among the buffers with
// messages or a backlog.
func (s *Scheduler) remainingShare(b *PriorityBuffer) int {
	sum := 0.0
	for _, q := range s.queues {
		for _, other := range q.Buffers {
			if other == b || other.hasBacklog() || other.startable() > 0 {
				sum += other.weight
			}
		}
	}
	return max(1, int(float64(s.targetInFlight())*b.weight/sum)) - b.startable() - b.requested
}

// addRequested changes the number of messages that current requests may still return.
func (s *Scheduler) addRequested(b *PriorityBuffer, change int) {
	b.requested += change
	b.queue.requested += change
	s.requested += change
}

// AddMessage adds a message that the request returned, or gives it back if it can no longer be used.
func (s *Scheduler) AddMessage(b *PriorityBuffer, request FetchRequest, delivery broker.Delivery) {
	backlog := delivery.PendingCount()
	var kind *kindLimit // nil if the kind of the message has no limit
	if len(s.kinds) > 0 {
		kind = s.kinds[delivery.Message().Kind]
	}
	s.mu.Lock()
	m := &LeasedMessage{Delivery: delivery, buffer: b, kind: kind, receivedAt: s.now()}
	s.leased[m] = struct{}{}
	if !request.Poll && b.requested > 0 {
		s.addRequested(b, -1)
	}
	b.backlog, b.requestFailed = backlog, false
	isUnusable := s.draining.Load() || s.held || s.suspect != nil || s.closed || b.queue.retired
	if isUnusable {
		s.releasing++
	} else {
		b.messages = append(b.messages, m)
		if m.kind != nil {
			b.byKind[m.kind]++
		}
		s.prefetched++
		b.queue.prefetched++
		s.wakeExecutor()
		if b.queue.isRateLimited() {
			s.slotsNeeded.Broadcast()
		}
	}
	s.mu.Unlock()
	if isUnusable {
		s.release(m)
	}
}

// CompleteRequest records the end of a request, after AddMessage was called for each received message.
func (s *Scheduler) CompleteRequest(b *PriorityBuffer, request FetchRequest, received int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activeRequests--
	if request.Poll {
		b.isPolling = false
	} else {
		s.addRequested(b, -min(b.requested, max(0, request.Messages-received)))
	}
	b.requestFailed = err != nil
	b.queue.requestEnded(s.now(), err)
	if received < request.Messages {
		b.backlog = 0
	}
	s.wakeAllWaiters()
}
