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
	// delayedStreamSuffix: the messages that are not due yet are in a stream of their own, because the server lets every producer of a
	// stream with schedules delete messages by a header.
	delayedStreamSuffix = "_delayed"
	// transferConsumer is the consumer of that stream through which the server moves messages that are due to the stream of the queue.
	transferConsumer = "transfer"
	subjectPrefix    = "yardmaster."
)

func streamName(queue string) string { return streamPrefix + queue }

func deadStreamName(queue string) string { return streamPrefix + queue + deadStreamSuffix }

func delayedStreamName(queue string) string { return streamPrefix + queue + delayedStreamSuffix }

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

// delayedSubject is the subject on which a job waits until it is due. Its token is that of the ID of the job, or a wildcard.
func delayedSubject(queue, token string) string { return subjectPrefix + queue + ".delayed." + token }

// dueSubject is the subject of a delayed message that is due, until the server has moved it to the stream of the queue. It has the token
// of the job, so that a message which replaces others with its subject replaces only this job.
func dueSubject(queue, priority, token string) string {
	return subjectPrefix + queue + ".due." + priority + "." + token
}

// guardSubject is the subject of a message by which the operator finds that someone erased the delayed messages.
func guardSubject(queue string) string { return subjectPrefix + queue + ".guard" }

// transferSubject is the subject on which the server moves messages that are due.
func transferSubject(queue string) string { return subjectPrefix + queue + ".transfer" }

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
