package jetstream

import (
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Names of queues contain neither dots nor underscores, so names of objects of different
// queues cannot collide.
const (
	streamPrefix     = "yardmaster_"
	deadStreamSuffix = "_dead"
	subjectPrefix    = "yardmaster."
)

func streamName(queue string) string { return streamPrefix + queue }

func deadStreamName(queue string) string { return streamPrefix + queue + deadStreamSuffix }

func bucketName(queue string) string { return streamPrefix + queue }

func bucketStreamName(queue string) string { return "KV_" + bucketName(queue) }

// The bucket with the states of jobs is apart from the bucket of the queue, because its entries are discarded when they are old or
// take too much space.

func jobsBucketName(queue string) string { return bucketName(queue) + "_jobs" }

func jobsStreamName(queue string) string { return "KV_" + jobsBucketName(queue) }

func readySubject(queue, priority string) string { return subjectPrefix + queue + ".ready." + priority }

func arrivedSubject(queue, priority string) string {
	return subjectPrefix + queue + ".arrived." + priority
}

func delayedSubjectFilter(queue string) string { return subjectPrefix + queue + ".delayed.>" }

// placeholderSubject replaces the subjects of a queue that rejects messages, because a stream must have a subject.
func placeholderSubject(queue string) string { return subjectPrefix + queue + ".closed" }

func deadLetterSubject(queue, priority string) string {
	return subjectPrefix + queue + ".dead." + priority
}

// maxDeliveriesSubject is the subject of advisories about messages that the server stops delivering. Versions before v0.2 stored
// them with the dead letters.
func maxDeliveriesSubject(queue string) string {
	return "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES." + streamName(queue) + ".*"
}

func priorityFromSubject(subject string) string {
	return subject[strings.LastIndexByte(subject, '.')+1:]
}

// Keys of the bucket of a queue.
const (
	rateLimitKey = "limit"
	rateStateKey = "rate"
)

var namePattern = regexp.MustCompile(`^[-_A-Za-z0-9]+$`)

// isName reports whether all texts can be tokens of a subject without wildcards.
func isName(texts ...string) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !namePattern.MatchString(text) })
}

func (e *Engine) silentDomainError() error {
	return broker.Errorf(broker.ClassUnreachable,
		"the JetStream domain %s does not respond: it does not exist, or the leaf node of the connection is not connected to it", e.domain)
}

// apiPrefix returns the prefix of the subjects of requests to JetStream.
func (e *Engine) apiPrefix() string {
	if e.domain == "" {
		return jetstream.DefaultAPIPrefix
	}
	return "$JS." + e.domain + ".API."
}

func (e *Engine) nextMessageSubject(queue, priority string) string {
	return e.apiPrefix() + "CONSUMER.MSG.NEXT." + streamName(queue) + "." + priority
}

// storedKeySubject is the subject of a key in the stream of the queue's bucket.
func storedKeySubject(queue, key string) string { return "$KV." + bucketName(queue) + "." + key }

// writableSubject returns the subject to which a key of a bucket with this subject is published. Between domains, servers forward
// keys only with the prefix of the API.
func (e *Engine) writableSubject(subject string) string {
	if e.domain == "" {
		return subject
	}
	return e.apiPrefix() + subject
}
