package broker

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// HeaderPrefix is the prefix of headers that describe a message. Producers set the headers below, and handlers see visibleHeaders.
	HeaderPrefix = "Yardmaster-"
	// TimeoutHeader replaces JobTimeout for one message: a duration such as 90s.
	TimeoutHeader = HeaderPrefix + "Timeout"
	// KindHeader is the kind of a job, by which workers select its handler. An asynq task has its type instead.
	KindHeader = HeaderPrefix + "Kind"
	// JobIDHeader is the ID of a job, which does not change when its dead letter is requeued or moved. Without this header, the ID is the
	// Nats-Msg-Id or the sequence number of a NATS message, or the ID of an asynq task.
	JobIDHeader = HeaderPrefix + "Job-Id"
	// UniqueHeader is the key of a job that is unique until it has ended.
	UniqueHeader = HeaderPrefix + "Unique"
	// HolderHeader identifies the message that has the key, or the message of the final job of a batch.
	HolderHeader = HeaderPrefix + "Holder"
	// BatchHeader is the ID of the batch of a job.
	BatchHeader = HeaderPrefix + "Batch"
	// MemberHeader is the number of a job in its batch, from 0, or FinalMember.
	MemberHeader = HeaderPrefix + "Member"
	// FinalMember is the value of MemberHeader for the job that runs when all others have ended.
	FinalMember = "final"
)

// visibleHeaders are the headers with HeaderPrefix that handlers see.
var visibleHeaders = []string{TimeoutHeader, KindHeader, UniqueHeader, HolderHeader, BatchHeader, MemberHeader}

// IsProducerHeader reports whether handlers see a header of the producer, in any spelling.
func IsProducerHeader(name string) bool {
	return !HasPrefixFold(name, HeaderPrefix) || slices.ContainsFunc(visibleHeaders, func(visible string) bool { return strings.EqualFold(name, visible) })
}

// IsBatchHeader reports whether a header is about a batch, in any spelling. Dead letters do not have such headers: their jobs have ended,
// and run without the batch if they are requeued.
func IsBatchHeader(name string) bool {
	return strings.EqualFold(name, BatchHeader) || strings.EqualFold(name, MemberHeader)
}

// HasPrefixFold is strings.HasPrefix in any spelling.
func HasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// TimeoutOf returns the time that a handler has for a message, from the header of the message, or else of its queue. 0 means no limit. It
// returns an error if the header is invalid.
func (q *QueueConfig) TimeoutOf(headers map[string][]string) (time.Duration, error) {
	for name, values := range headers {
		if !strings.EqualFold(name, TimeoutHeader) || len(values) == 0 {
			continue
		}
		timeout, err := time.ParseDuration(values[0])
		if err != nil || !isJobTimeout(timeout) {
			return 0, fmt.Errorf("the header %s is %.32q, must be a duration from %s to %s, such as 90s",
				TimeoutHeader, values[0], MinJobTimeout, MaxJobTimeout)
		}
		return timeout, nil
	}
	return q.JobTimeout, nil
}

func isJobTimeout(d time.Duration) bool { return d >= MinJobTimeout && d <= MaxJobTimeout }
