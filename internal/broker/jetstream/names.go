package jetstream

import "strings"

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
