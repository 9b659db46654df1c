package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Stats implements broker.Engine. It needs four requests, and another request for each priority to find the oldest ready message, or
// a retry that is due, one if messages are delayed, and one if a priority has no consumer.
func (e *Engine) Stats(ctx context.Context, queue string) (f broker.QueueStats, err error) {
	defer func() { err = e.classifyError("reading the stats of the queue "+queue, err) }()
	// Read the stream of delayed messages first: a message that moves in between counts twice for a moment, and is not missing.
	postponed, isWhole, err := e.countPostponed(ctx, queue)
	if err != nil && !isNotFound(err) {
		return f, err
	}
	// Read the stream before the consumers: a message that is acknowledged in between counts as delayed for a moment, and is not
	// missing.
	stream, err := e.js.Stream(ctx, streamName(queue))
	if err != nil {
		return f, err
	}
	infos, err := listConsumers(ctx, stream)
	if err != nil {
		return f, err
	}
	info := stream.CachedInfo()
	f = broker.QueueStats{Postponed: postponed, TotalArrivals: info.State.LastSeq, MeasuredTime: info.TimeStamp, RetriesInFlight: true}
	for _, consumer := range infos {
		f.Ready += int64(consumer.NumPending) //nolint:gosec // counts of messages
		f.InFlight += int64(consumer.NumAckPending)
	}
	if err := readMissingPriorities(ctx, queue, stream, infos, &f); err != nil {
		return f, err
	}
	f.Delayed = max(0, int64(info.State.Msgs)-f.Ready-f.InFlight) //nolint:gosec // counts of messages
	if err := readOldestReadyTime(ctx, queue, stream, infos, &f); err != nil {
		return f, err
	}
	if f.RetryDue, err = e.isRetryDue(ctx, queue, infos, &f); err != nil {
		return f, err
	}
	f.Delayed += f.Postponed
	switch config := &info.Config; {
	case !isWhole && len(config.Sources) > 0:
		f.Missing = append(f.Missing, "stream "+delayedStreamName(queue))
	case f.Postponed > 0 && config.Discard == jetstream.DiscardOld: // otherwise, it may wait until the queue has space
		oldest, err := e.oldestDue(ctx, queue)
		if err != nil {
			return f, err
		}
		f.Overdue = oldest != nil && f.MeasuredTime.Sub(oldest.Time) > overdueAge
	}
	dead, err := e.js.Stream(ctx, deadStreamName(queue))
	switch {
	case err == nil:
		f.DeadLetters = int64(dead.CachedInfo().State.Msgs) //nolint:gosec // a count of messages
	case isNotFound(err):
		err = nil // an interrupted deletion, or someone else, has deleted the stream; EnsureQueue creates it again
	}
	return f, err
}

// countPostponed returns the number of messages in the stream of delayed messages, without the guard, and whether nobody erased them.
func (e *Engine) countPostponed(ctx context.Context, queue string) (number int64, isWhole bool, err error) {
	body, err := json.Marshal(map[string]string{"subjects_filter": guardSubject(queue)})
	if err != nil {
		return 0, false, err
	}
	reply, err := e.request(ctx, "STREAM.INFO."+delayedStreamName(queue), body)
	if err != nil {
		return 0, false, err
	}
	var answer struct {
		jetstream.StreamInfo

		Error *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(reply.Data, &answer); {
	case err != nil:
		return 0, false, fmt.Errorf("the server's answer is invalid: %w", err)
	case answer.Error != nil:
		return 0, false, answer.Error
	}
	stored, guards := answer.State.Msgs, answer.State.Subjects[guardSubject(queue)]
	return int64(stored - min(stored, guards)), hasGuard(answer.Config.Metadata, &answer.State), nil //nolint:gosec // a count of messages
}

// overdueAge is how long the server may take to move a message that is due to a queue without a limit: it asks again every two seconds.
const overdueAge = 10 * time.Second

// oldestDue returns the first message that is due, and that is not in the stream of the queue yet. It returns nil without such a message.
func (e *Engine) oldestDue(ctx context.Context, queue string) (*storedMessage, error) {
	found, err := e.readMessage(ctx, delayedStreamName(queue), map[string]any{"seq": 1, "next_by_subj": dueSubject(queue, "*", "*")})
	if isNotFound(err) {
		return nil, nil //nolint:nilnil // the queue cannot delay messages
	}
	return found, err
}

// readMissingPriorities finds priorities whose consumer someone deleted. The stream still has their messages, of which no consumer counts
// any as ready or in flight.
func readMissingPriorities(ctx context.Context, queue string, stream jetstream.Stream, infos map[string]*jetstream.ConsumerInfo, f *broker.QueueStats) error {
	for _, subject := range stream.CachedInfo().Config.Subjects {
		if priority, isReady := strings.CutPrefix(subject, readySubject(queue, "")); isReady && infos[priority] == nil {
			f.Missing = append(f.Missing, priority)
		}
	}
	if len(f.Missing) == 0 {
		return nil
	}
	counts, err := stream.Info(ctx, jetstream.WithSubjectFilter(readySubject(queue, "*")))
	if err != nil {
		return err
	}
	for _, priority := range f.Missing {
		f.Ready += int64(counts.State.Subjects[readySubject(queue, priority)]) //nolint:gosec // a count of messages
	}
	return nil
}

// readOldestReadyTime reads when the oldest ready message was sent, if the state of the stream does not contain it.
//
// A consumer registers a message shortly after the stream has stored and announced it. In between, the message appears delayed.
// readOldestReadyTime counts it as ready, because a pool that was activated for the message would otherwise scale down again.
func readOldestReadyTime(ctx context.Context, queue string, stream jetstream.Stream, infos map[string]*jetstream.ConsumerInfo, f *broker.QueueStats) error {
	if f.Ready > 0 && f.InFlight == 0 && f.Delayed == 0 {
		f.OldestReadyTime = stream.CachedInfo().State.FirstTime
		return nil
	}
	unnoticed := f.Ready == 0
	if unnoticed && f.Delayed == 0 {
		return nil
	}
	for _, info := range infos {
		if info.NumPending == 0 && !unnoticed {
			continue
		}
		message, err := stream.GetMsg(ctx, info.Delivered.Stream+1, jetstream.WithGetMsgSubject(info.Config.FilterSubject))
		if isNotFound(err) {
			continue // another client received the message, or no message exists
		}
		if err != nil {
			return err
		}
		if unnoticed && f.Delayed > 0 {
			f.Ready, f.Delayed = f.Ready+1, f.Delayed-1
		}
		if f.OldestReadyTime.IsZero() || message.Time.Before(f.OldestReadyTime) {
			f.OldestReadyTime = message.Time
		}
	}
	for _, priority := range f.Missing {
		message, err := stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(readySubject(queue, priority)))
		switch {
		case isNotFound(err):
		case err != nil:
			return err
		case f.OldestReadyTime.IsZero() || message.Time.Before(f.OldestReadyTime):
			f.OldestReadyTime = message.Time
		}
	}
	return nil
}

// isRetryDue reports whether a message is due again after a retry or a lost lease. Until a worker receives it again, the server counts
// it as delivered and not acknowledged. It returns false if other messages are ready, because then a retry makes no difference.
func (e *Engine) isRetryDue(ctx context.Context, queue string, infos map[string]*jetstream.ConsumerInfo, f *broker.QueueStats) (bool, error) {
	if f.Ready > 0 {
		return false, nil
	}
	for priority, info := range infos {
		if info.NumAckPending == 0 || info.Paused {
			continue
		}
		if due, err := e.probe(ctx, queue, priority, 0); due || err != nil {
			return due, err
		}
	}
	return false, nil
}

// probeRequest is a pull request for a message of at most one byte. Every message is longer, because its subject counts. So the
// server keeps the message, and answers that it is too long.
type probeRequest struct {
	pullRequest
	MaxBytes int `json:"max_bytes"`
}

// probe reports whether the server can deliver a message now, or within the wait, without receiving it.
func (e *Engine) probe(ctx context.Context, queue, priority string, wait time.Duration) (bool, error) {
	body, err := json.Marshal(probeRequest{pullRequest{Batch: 1, Expires: wait, NoWait: wait == 0}, 1})
	if err != nil {
		return false, err
	}
	reply, err := e.nc.RequestWithContext(ctx, e.nextMessageSubject(queue, priority), body)
	if errors.Is(err, nats.ErrNoResponders) {
		return false, nil // the priority was deleted
	}
	if err != nil {
		return false, err
	}
	return reply.Header.Get("Status") == "409" && strings.HasPrefix(reply.Header.Get("Description"), "Message Size Exceeds"), nil
}

// WaitForMessage implements broker.Engine. It subscribes before it checks the queue, so that it misses no message, and checks again
// after each reconnect.
func (e *Engine) WaitForMessage(ctx context.Context, queue string) error {
	subscribing := "subscribing to the queue " + queue
	arrived := make(chan *nats.Msg, 1)
	subscription, err := e.nc.ChanSubscribe(arrivedSubject(queue, "*"), arrived)
	if err != nil {
		return e.classifyError(subscribing, err)
	}
	defer func() { _ = subscription.Unsubscribe() }()
	back := e.nc.StatusChanged(nats.CONNECTED)
	defer e.nc.RemoveStatusListener(back)
	for {
		// Another goroutine reads the stats, because its stack grows and is freed, and this goroutine often waits for days.
		var stats broker.QueueStats
		var reading sync.WaitGroup
		reading.Go(func() {
			// Flush, so that the server has the subscription before the check.
			soon, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			if err = e.classifyError(subscribing, e.nc.FlushWithContext(soon)); err == nil {
				stats, err = e.Stats(ctx, queue)
			}
		})
		reading.Wait()
		if err != nil || stats.Ready > 0 || stats.RetryDue {
			return err
		}
		if found, err := e.waitForChange(ctx, queue, stats.InFlight > 0, arrived, back); found || err != nil {
			return err
		}
	}
}

// waitForChange returns true when a message arrives or a retry is due, and false when the queue has to be checked again.
func (e *Engine) waitForChange(
	ctx context.Context, queue string, hasRetries bool, arrived <-chan *nats.Msg, back <-chan nats.Status,
) (found bool, err error) {
	waiting, due := ctx, make(chan struct{}, 1)
	if hasRetries {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, retryCheckInterval)
		defer cancel()
		go e.watchRetries(waiting, queue, due)
	}
	select {
	case <-arrived:
		return true, nil
	case <-due:
		return true, nil
	case <-back:
	case <-waiting.Done():
	}
	return false, ctx.Err()
}

// retryCheckInterval is the time between two checks for retries, in case a request to the server is lost.
const retryCheckInterval = 15 * time.Second

// watchRetries sends to due when a retry is due in one of the priorities, until ctx ends. The server does not announce retries as it
// announces new messages, but it answers a waiting pull request when a retry is due.
func (e *Engine) watchRetries(ctx context.Context, queue string, due chan<- struct{}) {
	stream, err := e.js.Stream(ctx, streamName(queue))
	if err != nil {
		return // the next check reports it
	}
	infos, _ := listConsumers(ctx, stream)
	for priority := range infos {
		go func() {
			if found, err := e.probe(ctx, queue, priority, retryCheckInterval); found && err == nil {
				select {
				case due <- struct{}{}:
				default:
				}
			}
		}()
	}
}
