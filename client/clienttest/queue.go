package clienttest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/construct"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/worker"
)

// queue receives the messages of a queue as soon as they are ready, and keeps them under their lease until Run runs them, so that retries
// are due by the clock of the test.
type queue struct {
	*Queues
	broker.Subscription

	config    broker.QueueConfig
	stream    jetstream.Stream
	postponed jetstream.Stream // the jobs that are not due yet
	consumers map[string]broker.Consumer
	// jobs that were received and do not run, in the order in which they were sent or failed.
	jobs    []*delivery
	letters []Job // the dead letters
}

type delivery struct {
	broker.Delivery

	queue *queue
	// since is when the job was sent or failed, due when it may run; zero: at once.
	since, due time.Time
	// failures is the number of attempts that have failed.
	failures int
	// isStarted: its handler was called in this attempt.
	isStarted bool
}

// History implements broker.Delivery.
func (d *delivery) History(context.Context) (broker.History, error) {
	return broker.History{Failed: d.failures}, nil
}

// CountFailure implements broker.Delivery.
func (d *delivery) CountFailure(context.Context) error {
	d.failures++
	return nil
}

// Lose implements broker.Delivery.
func (d *delivery) Lose(ctx context.Context, delay time.Duration, _ string) error {
	return d.Release(ctx, delay)
}

// Ack implements broker.Delivery. The job is no longer in the queue when the test continues.
func (d *delivery) Ack(ctx context.Context, _ bool) error { return d.Delivery.Ack(ctx, true) }

// Retry implements broker.Delivery.
func (d *delivery) Retry(ctx context.Context, delay time.Duration, _ string) error {
	d.failures++
	return d.Release(ctx, delay)
}

// Release implements broker.Delivery. A job that waits for others is due in the next call of Run.
func (d *delivery) Release(_ context.Context, delay time.Duration) error {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	d.since, d.due = time.Now(), d.queue.Now()
	if d.isStarted {
		d.due = d.due.Add(delay)
	}
	d.queue.jobs = append(d.queue.jobs, d)
	return nil
}

// Bury implements broker.Delivery.
func (d *delivery) Bury(ctx context.Context, reason string, attempts int) error {
	if err := d.Delivery.Bury(ctx, reason, attempts); err != nil {
		return err
	}
	letter := jobOf(d.Message())
	letter.Attempts, letter.Error = attempts, reason
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	d.queue.letters = append(d.queue.letters, letter)
	return nil
}

// Abandon implements broker.Delivery. The broker delivers the message again.
func (d *delivery) Abandon() { _ = d.Release(context.Background(), 0) }

func jobOf(m *broker.Message) Job {
	return Job{ID: m.ID, Kind: m.Kind, Priority: m.Priority, Payload: m.Payload, Headers: m.Headers, SentTime: m.SentTime}
}

// JobRecorder implements broker.Subscription.
func (q *queue) JobRecorder(ctx context.Context, onCancel func(id string, request jobstate.Cancel)) (broker.JobRecorder, error) {
	r, err := q.Subscription.JobRecorder(ctx, onCancel)
	return recorder{r}, err
}

// recorder records the messages of the engine.
type recorder struct{ broker.JobRecorder }

// Record implements broker.JobRecorder.
func (r recorder) Record(ctx context.Context, d broker.Delivery, entry *jobstate.Entry) error {
	if held, isHeld := d.(*delivery); isHeld {
		d = held.Delivery
	}
	return r.JobRecorder.Record(ctx, d, entry)
}

// receive receives all messages that are ready. It may have to repeat a request, because the server confirms a message before its consumers
// have it. The caller holds the lock.
func (q *queue) receive(ctx context.Context) error {
	for priority, consumer := range q.consumers {
		last, err := q.stream.GetLastMsgForSubject(ctx, readySubject(q.config.Name, priority))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		for err == nil {
			var found jetstream.Consumer
			if found, err = q.stream.Consumer(ctx, priority); err != nil || found.CachedInfo().Delivered.Stream >= last.Sequence {
				break
			}
			_, err = consumer.Next(ctx, time.Second, func(d broker.Delivery) {
				q.jobs = append(q.jobs, &delivery{Delivery: d, queue: q, since: d.Message().SentTime})
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (q *queue) run(ctx context.Context, handler worker.Handler) (attempts int, err error) {
	var current *delivery
	var counted worker.Handler = func(ctx context.Context, job *worker.Job) error {
		current.isStarted = true
		attempts++
		err := handler(ctx, job)
		if worker.IsSnooze(err) {
			attempts--
		}
		return err
	}
	store := q.engine.(broker.KeyStore) //nolint:forcetypeassert // the engine implements it
	runMessage, stop, err := construct.Runner(ctx, store, q, q.config, counted, q.Now)
	if err != nil {
		return 0, err
	}
	defer stop()
	for end := q.Now(); ctx.Err() == nil; runMessage(current) {
		if current, err = q.take(ctx, end); current == nil {
			return attempts, err
		}
	}
	return attempts, nil
}

// take removes the next job that is due at a time, of the most urgent priority. It returns nil if no job is due.
func (q *queue) take(ctx context.Context, due time.Time) (*delivery, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.makeReady(ctx)
	if err == nil {
		err = q.receive(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, priority := range q.config.Priorities {
		i := slices.IndexFunc(q.jobs, func(d *delivery) bool { return d.Message().Priority == priority.Name && !d.due.After(due) })
		if i >= 0 {
			taken := q.jobs[i]
			q.jobs = slices.Delete(q.jobs, i, i+1)
			taken.isStarted = false
			return taken, nil
		}
	}
	return nil, nil //nolint:nilnil // nil means that no job is due
}

func (q *queue) list(ctx context.Context) ([]Job, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.receive(ctx); err != nil {
		return nil, err
	}
	type listed struct {
		Job

		since time.Time
	}
	var all []listed
	for _, d := range q.jobs {
		job := jobOf(d.Message())
		job.Attempts, job.DueTime = d.failures, d.due
		all = append(all, listed{job, d.since})
	}
	err := q.delayed(ctx, func(m *jetstream.RawStreamMsg, due time.Time) error {
		job := Job{
			ID: m.Header.Get(broker.JobIDHeader), Kind: m.Header.Get(broker.KindHeader), Payload: m.Data, SentTime: m.Time, DueTime: due,
		}
		job.Priority = priorityOf(m, q.config.Name)
		job.Headers = withoutServerHeaders(m.Header)
		maps.DeleteFunc(job.Headers, func(name string, _ []string) bool { return !broker.IsProducerHeader(name) })
		all = append(all, listed{job, m.Time})
		return nil
	})
	slices.SortStableFunc(all, func(a, b listed) int { return a.since.Compare(b.since) })
	jobs := make([]Job, len(all))
	for i := range all {
		jobs[i] = all[i].Job
	}
	return jobs, err
}

// delayed calls visit for each message that is not due by the clock of the server.
func (q *queue) delayed(ctx context.Context, visit func(message *jetstream.RawStreamMsg, due time.Time) error) error {
	for next := uint64(1); ; {
		message, err := q.postponed.GetMsg(ctx, next, jetstream.WithGetMsgSubject("yardmaster."+q.config.Name+".delayed.>"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		due, err := time.Parse(time.RFC3339, strings.TrimPrefix(message.Header.Get(jetstream.ScheduleHeader), "@at "))
		if err == nil {
			err = visit(message, due)
		}
		if err != nil {
			return err
		}
		next = message.Sequence + 1
	}
}

// serverTime is how long before its due time the server may be making a message ready.
const serverTime = time.Second

var errDelayed = errors.New("the server has not made the job ready")

// makeReady makes the delayed jobs ready that are due by the clock of the test. The caller holds the lock.
func (q *queue) makeReady(ctx context.Context) error {
	return q.delayed(ctx, func(message *jetstream.RawStreamMsg, due time.Time) error {
		if due.After(q.Now()) {
			return nil
		}
		if time.Until(due) < serverTime {
			return poll.UntilNil(ctx, func() error {
				_, err := q.postponed.GetMsg(ctx, message.Sequence)
				if errors.Is(err, jetstream.ErrMsgNotFound) {
					_, err = q.postponed.GetMsg(ctx, message.Sequence, jetstream.WithGetMsgSubject("yardmaster."+q.config.Name+".due.>"))
				}
				if errors.Is(err, jetstream.ErrMsgNotFound) {
					return nil // the server has made it ready, and has moved it
				}
				return cmp.Or(err, errDelayed)
			})
		}
		ready := &nats.Msg{Subject: readySubject(q.config.Name, priorityOf(message, q.config.Name)), Data: message.Data}
		ready.Header = withoutServerHeaders(message.Header)
		if _, err := q.js.PublishMsg(ctx, ready); err != nil {
			return err
		}
		return q.postponed.DeleteMsg(ctx, message.Sequence)
	})
}

// withoutServerHeaders removes the headers that the server interprets or sets.
func withoutServerHeaders(headers nats.Header) nats.Header {
	maps.DeleteFunc(headers, func(name string, _ []string) bool { return broker.HasPrefixFold(name, "Nats-") })
	return headers
}

// priorityOf returns the priority of a delayed message.
func priorityOf(m *jetstream.RawStreamMsg, queue string) string {
	priority, _, _ := strings.Cut(strings.TrimPrefix(m.Header.Get(jetstream.ScheduleTargetHeader), "yardmaster."+queue+".due."), ".")
	return priority
}

func readySubject(queue, priority string) string { return "yardmaster." + queue + ".ready." + priority }
