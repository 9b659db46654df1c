package client

import (
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Option sets a property of a job. Of two options for the same property, the last applies.
type Option func(*jobOptions)

type jobOptions struct {
	job   broker.OutgoingJob
	delay time.Duration
}

// Priority is the name of a priority of the queue. The default is "default", the only priority of queues that define none, and on asynq.
func Priority(name string) Option { return func(o *jobOptions) { o.job.Priority = name } }

// Delay is the time after which workers may start the job, by the clock of this machine. asynq rounds up to seconds.
func Delay(delay time.Duration) Option {
	return func(o *jobOptions) { o.delay, o.job.DueTime = delay, time.Time{} }
}

// At is the time from which on workers may start the job. A time in the past means at once. asynq rounds up to seconds.
func At(due time.Time) Option { return func(o *jobOptions) { o.delay, o.job.DueTime = 0, due } }

// ID identifies the job in its queue: 1 to 128 printable ASCII characters other than spaces and ~. The broker keeps one of the jobs that
// are sent with the same ID: JetStream for two minutes, and until the job is due; asynq as long as it stores the task. By default, the
// job is not deduplicated, and receives an ID when it is stored.
func ID(id string) Option { return func(o *jobOptions) { o.job.ID, o.job.HasChosenID = id, true } }

// DeduplicateFor is the minimum time for which the queue recognizes another job with the same ID as a duplicate. On JetStream, the queue
// has a fixed time, and a longer time is ErrUnsupported. On asynq, the completed task is kept for this time, rounded up to seconds.
func DeduplicateFor(window time.Duration) Option {
	return func(o *jobOptions) { o.job.DeduplicateFor = window }
}

// Unique makes the queue accept one job with a key until that job is done, dead or canceled. For another job, Enqueue returns
// ErrKeyTaken, and Error.KeyHolder is the ID of the job that has the key. A key is 1 to 128 printable ASCII characters other than spaces.
//
// The key is free again 24 hours after the job was sent, its delay was over, or its last attempt started. If the queue then accepts another
// job, workers run both one after the other.
func Unique(key string) Option {
	return func(o *jobOptions) {
		o.job.IsUnique, o.job.UniqueKey, o.job.IsUniqueFor, o.job.UniqueFor = true, key, false, 0
	}
}

// UniqueFor makes the queue accept one job with a key for a time of 1 second to 365 days, rounded to seconds on JetStream, whether the job
// ends earlier or later. The key and the errors are those of Unique.
func UniqueFor(key string, window time.Duration) Option {
	return func(o *jobOptions) {
		o.job.IsUnique, o.job.UniqueKey, o.job.IsUniqueFor, o.job.UniqueFor = true, key, true, window
	}
}

// Timeout is the time that a handler has for the job, 1 second to 24 hours. The default is the timeout of the queue.
func Timeout(timeout time.Duration) Option { return func(o *jobOptions) { o.job.Timeout = timeout } }

// Kind selects the handler of the job: at most 128 printable ASCII characters other than spaces. On asynq, it is the type of the task.
func Kind(kind string) Option { return func(o *jobOptions) { o.job.Kind = kind } }

// Header sets a header of the job, which its handler receives. asynq supports one value. Names that begin with Yardmaster-, Nats- or Asynq-
// are reserved.
func Header(name string, values ...string) Option {
	return func(o *jobOptions) {
		if o.job.Headers == nil {
			o.job.Headers = map[string][]string{}
		}
		o.job.Headers[name] = values
	}
}

// Headers sets headers of the job, as Header does.
func Headers(headers map[string][]string) Option {
	return func(o *jobOptions) {
		for name, values := range headers {
			Header(name, values...)(o)
		}
	}
}
